"""LOBSTER: loss-based sensitivity regularisation [tartaglione2022], as [renzulli2025] prunes.

In every step, when gradients are there and before the optimiser moves, weights that the loss hardly
feels shrink:
    w ← w − λ_e w max(0, 1 − |∂L/∂w|),    λ_e = λ · 0.99^(e + 1) in epoch e from 0
After every epoch all weights with |w| < T are pruned, for the largest T at which the loss on
validation images is at most (1 + tolerance) times what it was before.

T is found by bisection, which takes the loss to grow with T.

Departures from public code of [renzulli2025]:
1. The bisection is over how many weights lie below T, and ends when that is known to 1 in 1,000 of
   all weights: some ten looks at the validation images. There it is over T itself, down to 1e-10.
2. Biases of convolutions are neither shrunk nor pruned.
3. A loss of NaN ends training with a sentence; there the best weights are loaded again.
Ambiguities: [renzulli2025] gives no numbers. λ = 1e-4, its decay and tolerance = 0 are its code's,
as is that it prunes after every epoch.
"""

from collections.abc import Callable
from typing import final

import torch
from torch import nn

from torchcaps._checks import check_number
from torchcaps.errors import TorchcapsError
from torchcaps.prune.masks import lowest
from torchcaps.prune.pruner import Pruner

DECAY = 0.99
# The threshold is known when it is found to one in so many of all weights.
STEPS = 1000


@final
class Lobster(Pruner):
    """Shrinks what the loss does not feel, and prunes what the validation loss does not miss.

    Arguments:
        model: the network.
        shrink: λ of the first epoch, before its decay.
        tolerance: by which share the validation loss may rise in one pruning.
        most: a sparsity beyond which nothing more is pruned, to compare networks at the same one;
            at 0 weights shrink and none is pruned, a control.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        shrink: float = 1e-4,
        tolerance: float = 0.0,
        most: float | None = None,
    ):
        super().__init__(model)
        so = "it is the share by which a step shrinks weights, for example 1e-4"
        check_number("shrink", shrink, above=0, below=1, so=so)
        # NaN is no tolerance either.
        if not tolerance >= 0:
            raise TorchcapsError(
                f"the tolerance by which the validation loss may rise must be 0 or more, but came "
                f"as {tolerance:g}."
            )
        # 0 is refused elsewhere, and False is no number.
        if most is not None and (most != 0 or most is False):
            self.check(most)
        self.shrink, self.tolerance, self.most = shrink, tolerance, most

    @torch.no_grad()
    def after_backward(self, epoch: int) -> None:
        factor = self.shrink * DECAY ** (epoch + 1)
        for weight in self.masks.weights.values():
            if weight.grad is not None:
                # Where gradients overflow, as in float16 now and then, no weight shrinks.
                insensitive = (1 - weight.grad.abs()).clamp_(min=0).nan_to_num_(0)
                weight.sub_(weight * insensitive, alpha=factor)

    def after_epoch(self, epoch: int, loss: Callable[[], float]) -> None:
        if self.most == 0:
            return
        all_of_them = self.masks.size
        scored = self.masks.scored(self.magnitudes())
        before = {name: weight.detach().clone() for name, weight in self.masks.weights.items()}
        allowed = loss() * (1 + self.tolerance)

        def is_allowed(count: int) -> bool:
            chosen = lowest(scored, count)
            # A layer without a weight would cut the network in two.
            if any(bool(mask.all()) for mask in chosen.values()):
                return False
            self._prune_from(before, chosen)
            return loss() <= allowed

        pruned = self.masks.count
        above = all_of_them if self.most is None else round(self.most * all_of_them)
        if self.most is not None and pruned < above and is_allowed(above):
            pruned = above
        while above - pruned > max(1, all_of_them // STEPS):
            middle = (pruned + above) // 2
            if is_allowed(middle):
                pruned = middle
            else:
                above = middle
        chosen = lowest(scored, max(pruned, self.masks.count))
        self._prune_from(before, chosen)
        self.masks.add(chosen)
        self.masks.apply()

    @torch.no_grad()
    def _prune_from(self, before: dict[str, torch.Tensor], chosen: dict[str, torch.Tensor]) -> None:
        for name, weight in self.masks.weights.items():
            weight.copy_(before[name].masked_fill(chosen[name], 0))
