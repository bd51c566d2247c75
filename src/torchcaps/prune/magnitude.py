"""Scheduled pruning of the smallest weights.

After epoch e of a ramp of n epochs the share s_e of all weights is pruned, those with the smallest
|w| in the whole network or, scope="layer", in each layer; what is left trains on [zhu2017]:
    s_e = s (1 − (1 − e / n)³)    for e < n,    s_e = s from n on

Departures from [zhu2017]: it prunes every layer to the same sparsity, scope="layer" here, which
takes as large a share of a small first convolution as of a large layer. One threshold for all
prunes those most whose weights are small by their initialisation: in CapsNet the primary
convolution, ten times smaller than the class matrices. scope="lamp" does neither [lee2021].
Ambiguities: [renzulli2025] §3.1.1 says "iterative magnitude pruning" and no schedule, and cites
[tartaglione2022], which is another method (lobster.py).
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import final

from torch import nn

from torchcaps._checks import check_count
from torchcaps.errors import TorchcapsError
from torchcaps.prune.pruner import Pruner, Scope, check_share


@final
class Magnitude(Pruner):
    """Prunes to `targets[e]` after epoch e, and to the last of them from then on.

    Arguments:
        model: the network.
        targets: shares of all weights, each at least as large as the one before.
        scope: whether layers are pruned together, each to the same share, or by LAMP scores.
    """

    by_magnitude = True

    def __init__(
        self,
        model: nn.Module,
        *,
        targets: Sequence[float],
        scope: Scope = "network",
    ):
        super().__init__(model, scope=scope)
        if isinstance(targets, int | float):
            raise TorchcapsError(
                f"targets are shares of the weights, one for each epoch, but came as the number "
                f"{targets:g}; give targets=({targets:g},) to prune at once, or "
                f"targets=ramp({targets:g}, epochs=5)."
            )
        # The highest first: it is the one that somebody asked for.
        for target in reversed(targets):
            self.check(target, on_the_way=target != targets[-1])
        if not targets or any(later < earlier for earlier, later in pairwise(targets)):
            raise TorchcapsError(
                f"targets must be shares of the weights that grow from epoch to epoch, for example "
                f"[0.5, 0.8, 0.9], but came as {list(targets)}."
            )
        self.targets = tuple(targets)

    def after_epoch(self, epoch: int, loss: Callable[[], float]) -> None:
        self.prune(self.magnitudes(), self.targets[min(epoch, len(self.targets) - 1)])


def ramp(to: float, *, epochs: int) -> tuple[float, ...]:
    """Set targets that rise steeply at first, while there is much to prune that nobody misses.

    Arguments:
        to: the share of zeros at the end.
        epochs: how many targets there are, one an epoch.

    >>> ramp(0.8, epochs=2)
    (0.7000000000000001, 0.8)
    """
    check_share(to)
    check_count("epochs", epochs)
    return (*(to * (1 - (1 - e / epochs) ** 3) for e in range(1, epochs)), to)
