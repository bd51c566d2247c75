"""What every pruning is: something that happens at a few moments of training, and masks."""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import ClassVar, Literal, final, get_args

import torch
from torch import Tensor, nn

from torchcaps._checks import check_choice
from torchcaps.errors import TorchcapsError, short
from torchcaps.prune.masks import Masks, lowest

# Whether one threshold holds for all layers, each layer is pruned to the same sparsity, or one
# threshold holds for weights that are measured by the larger ones of their layer.
Scope = Literal["network", "layer", "lamp"]
# The gradient of the training loss by the names of the weights.
Gradients = Callable[[], Mapping[str, Tensor]]


class Pruner:
    """Prunes a network while somebody else trains it.

    Whoever trains calls the methods at the moments they are named for. One that a pruner has no use
    for does nothing. The masks are everything that a pruner remembers, so a run that is continued
    needs them alone.

    Arguments:
        model: the network, whose weights are changed in place.
        scope: "network" compares weights of all layers; "layer" prunes each one to the same share
            of them; "lamp" compares weights of all layers by their `lamp` scores.
    """

    # Whether it chooses by magnitudes, which alone have LAMP scores.
    by_magnitude: ClassVar[bool] = False

    def __init__(self, model: nn.Module, *, scope: Scope = "network"):
        check_choice("scope", scope, get_args(Scope))
        if scope == "lamp" and not self.by_magnitude:
            raise TorchcapsError(
                f'scope="lamp" compares magnitudes, which {type(self).__name__} does not look at; '
                f'take "network" or "layer".'
            )
        self.scope: Scope = scope
        self.masks = Masks(model)

    def before_training(self, gradients: Gradients) -> None:
        """Prepare before the first step; `gradients` measures them and leaves the network alone."""

    def after_backward(self, epoch: int) -> None:
        """Act in every step, when gradients are there; epochs count from 0."""

    @final
    def after_step(self) -> None:
        """Act in every step, when the optimiser has moved the weights."""
        self.masks.apply()

    def after_epoch(self, epoch: int, loss: Callable[[], float]) -> None:
        """Act after every epoch; `loss` measures the network on validation images."""

    def at_the_end(self) -> None:
        """Act once training is done."""

    @final
    def prune(self, scores: Mapping[str, Tensor], sparsity: float) -> None:
        """Prune what has the lowest scores, until this share of all weights is zero."""
        scored = self.masks.scored(scores)
        count = round(sparsity * self.masks.size)
        # What is pruned stays so, even if a target is lower than one before. A layer may have fewer
        # than its share where all together have as many.
        if count > self.masks.count or self.scope == "layer":
            each = ', or choose layer by layer: prune_scope="layer"'
            instead = each if self.scope == "network" else ""
            self.masks.add(self._chosen(scored, sparsity, count), instead=instead)
        self.masks.apply()

    def _chosen(
        self, scored: Mapping[str, Tensor], sparsity: float, count: int
    ) -> Mapping[str, Tensor]:
        if self.scope != "layer":
            return lowest(scored, count)
        shares = {name: round(sparsity * score.numel()) for name, score in scored.items()}
        return {n: lowest({n: scored[n]}, shares[n])[n] for n in scored}

    @final
    def magnitudes(self) -> dict[str, Tensor]:
        """Say how large every weight is, scope="lamp" among the larger ones of its layer."""
        sizes = {name: weight.detach().abs() for name, weight in self.masks.weights.items()}
        if self.scope == "lamp":
            return {name: lamp(size) for name, size in sizes.items()}
        return sizes

    @final
    def check(self, sparsity: float, *, on_the_way: bool = False) -> None:
        """Refuse to prune nothing, or everything; on the way, less than a weight will do."""
        check_share(sparsity)
        if not 0 < sparsity < 1:
            what = "nothing would be pruned" if sparsity <= 0 else "no weight would be left"
            raise TorchcapsError(
                f"the sparsity to prune to must lie between 0 and 1, for example 0.9, but came as "
                f"{sparsity:g}, and {what}."
            )
        if round(sparsity * self.masks.size) == 0 and not on_the_way:
            raise TorchcapsError(
                f"a sparsity of {sparsity:g} is none of {self.masks.size:,} weights, so nothing "
                f"would be pruned; prune to more, for example 0.9."
            )


def check_share(sparsity: float) -> None:
    """Refuse what is no number: a text out of a table, say."""
    if isinstance(sparsity, bool) or not isinstance(sparsity, Real):
        raise TorchcapsError(
            f"the sparsity to prune to must be a number between 0 and 1, for example 0.9, but came "
            f"as {short(sparsity)}."
        )


def lamp(weight: Tensor) -> Tensor:
    """Compute the layer-adaptive magnitude [lee2021] Eq. 4: w² as a share of what pruning up to w
    would leave.

        lamp(w) = w² / Σ v²    over this weight and all larger ones v of its layer

    The largest weight of a layer scores 1, so no layer loses it before all layers have lost
    everything else. Nothing changes where all weights of a layer are multiplied by a number.

    Arguments:
        weight: all weights of one layer, of any shape.

    >>> lamp(torch.tensor([3.0, 0.0, -4.0]))
    tensor([0.3600, 0.0000, 1.0000], dtype=torch.float64)
    """
    # In double precision, since a layer can have millions of weights.
    squares = weight.detach().double().square().flatten()
    # Stable, so that of equal weights every device leaves the same ones.
    ordered, places = squares.sort(stable=True)
    left = ordered.flip(0).cumsum(0).flip(0)
    shares = torch.where(ordered > 0, ordered / left, 0.0)
    return torch.empty_like(squares).scatter_(0, places, shares).view(weight.shape)
