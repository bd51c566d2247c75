"""Masks: which weights are pruned, and that these are exactly zero whatever an optimiser does."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, final

import torch
from torch import Tensor, nn

from torchcaps._checks import check_finite, check_type
from torchcaps.errors import Emptied, TorchcapsError
from torchcaps.prune.weights import prunable


@final
class Masks:
    """One boolean tensor for every weight of a network that can be pruned, true where it is pruned.
    They are changed in place, for a step that a GPU repeats reads them where they lie.

    A pruned weight stays pruned. Momentum, Adam and weight decay move every weight, so `apply` sets
    pruned ones to zero again after each step. Weights that are zero to begin with are those of a
    network that was pruned before, for none is drawn so.

    >>> masks = Masks(model)
    >>> masks.add(lowest(masks.scored({name: w.abs() for name, w in masks.weights.items()}), 1000))
    >>> masks.apply()
    """

    def __init__(self, model: nn.Module):
        self.model = model
        self.weights = prunable(model)
        zeros = {name: weight.detach() == 0 for name, weight in self.weights.items()}
        # A tensor of zeros alone was not pruned, which leaves something of each.
        self.pruned = {name: mask & ~mask.all() for name, mask in zeros.items()}

    @property
    def size(self) -> int:
        """How many weights there are."""
        return sum(mask.numel() for mask in self.pruned.values())

    @property
    def count(self) -> int:
        """How many of them are pruned."""
        return sum(int(mask.sum()) for mask in self.pruned.values())

    @torch.no_grad()
    def apply(self) -> None:
        """Set every pruned weight to zero."""
        self.check_present()
        for name, weight in self.weights.items():
            weight.masked_fill_(self.pruned[name], 0)

    def check_present(self) -> None:
        """Refuse to go on with weights that the network does not have any more."""
        for name, weight in self.weights.items():
            try:
                is_there = attrgetter(name)(self.model) is weight
            except AttributeError:
                is_there = False
            if not is_there:
                raise TorchcapsError(
                    f"{name} of the network is no longer the tensor that was to be pruned, so "
                    f"nothing would come of it; was it replaced, by load_state_dict(…, "
                    f"assign=True) or reset_classes say? Make the pruner afterwards."
                )

    def add(self, pruned: Mapping[str, Tensor], *, instead: str = "") -> None:
        """Prune these weights too; refused where a tensor would lose all of them.

        Arguments:
            pruned: a boolean tensor for every weight, by name.
            instead: ends the sentence of a refusal: what else to do than to prune to less.
        """
        together = {name: mask | pruned[name] for name, mask in self.pruned.items()}
        for name, mask in together.items():
            if bool(mask.all()):
                raise Emptied(
                    f"pruning would set all {mask.numel()} weights of {name} to zero, and nothing "
                    f"would pass through the network any more; prune to a lower sparsity{instead}."
                )
        for name, mask in together.items():
            self.pruned[name].copy_(mask)

    def scored(self, scores: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Give scores of all weights, those of pruned ones below every other."""
        self.check_present()
        for name, score in scores.items():
            check_finite(
                f"the scores by which {name} is to be pruned", score, "did training diverge?"
            )
        return {name: scores[name].masked_fill(mask, -1) for name, mask in self.pruned.items()}

    def move(self, device: torch.device) -> None:
        """Go where the weights are."""
        self.pruned = {name: mask.to(device) for name, mask in self.pruned.items()}

    def state_dict(self) -> dict[str, Tensor]:
        return {name: mask.clone() for name, mask in self.pruned.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take masks that `state_dict` gave for the same network."""
        so = "they are damaged: take a copy that is whole"
        check_type(
            "masks", state, Mapping, so, as_a="a table of boolean tensors by the names of weights"
        )
        if set(state) != set(self.pruned):
            only = sorted(set(state) ^ set(self.pruned), key=str)[0]
            raise TorchcapsError(
                f"these masks are of another network: {only} is in only one of the two; take the "
                f"masks that were made for this network."
            )
        for name, mask in state.items():
            here = self.pruned[name]
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
                kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
                raise TorchcapsError(
                    f"the mask of {name} must be a tensor of booleans, but is {kind}; it is "
                    f"damaged: take a copy that is whole."
                )
            if mask.shape != here.shape:
                raise TorchcapsError(
                    f"these masks are of another network: that of {name} has shape "
                    f"{list(mask.shape)}, but the weights here have {list(here.shape)}."
                )
            if bool(mask.all()):
                raise TorchcapsError(
                    f"the mask of {name} prunes all {mask.numel()} weights, which no pruning does; "
                    f"it is damaged: take a copy that is whole."
                )
        for name, here in self.pruned.items():
            here.copy_(state[name])


def lowest(scores: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
    """Give the `count` entries with the lowest scores of all tensors together; of equal ones the
    first.

    Arguments:
        scores: tensors of any shape by name.
        count: how many entries to take.

    >>> lowest({"a": torch.tensor([3.0, 1.0]), "b": torch.tensor([2.0])}, 2)
    {'a': tensor([False,  True]), 'b': tensor([True])}
    """
    flat = torch.cat([score.detach().flatten() for score in scores.values()])
    if not 0 <= count <= flat.numel():
        raise TorchcapsError(
            f"there are {flat.numel()} weights to choose from, but {count} were asked for."
        )
    chosen = torch.zeros_like(flat, dtype=torch.bool)
    if count:
        # Quicker than sorting, and among equals the order of the weights decides.
        edge = flat.kthvalue(count).values
        chosen = flat < edge
        equal = (flat == edge).nonzero().squeeze(1)
        chosen[equal[: count - int(chosen.sum())]] = True
    parts = chosen.split([score.numel() for score in scores.values()])
    return {
        name: part.view(score.shape)
        for (name, score), part in zip(scores.items(), parts, strict=True)
    }
