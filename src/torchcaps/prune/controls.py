"""Two controls: masks drawn at random before training, and masks made once training is done.

A pruned network differs from the unpruned one in how many weights it has and in which, and in that
it was trained with them. Random masks have as many weights but no choice; masks at the end have the
choice but no training.
"""

from typing import final

import torch
from torch import nn

from torchcaps.prune.pruner import Gradients, Pruner, Scope


@final
class RandomMasks(Pruner):
    """Prunes to `to` before the first step, whichever weights a generator draws.

    Arguments:
        model: the network.
        to: the share of all weights that is zero afterwards.
        generator: draws a number for every weight; on the CPU, so that any device draws the same.
        scope: whether layers are pruned together, or each to the same share.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        to: float,
        generator: torch.Generator,
        scope: Scope = "network",
    ):
        super().__init__(model, scope=scope)
        self.check(to)
        self.to, self.generator = to, generator

    def before_training(self, gradients: Gradients) -> None:
        weights, generator = self.masks.weights.items(), self.generator
        drawn = {n: torch.rand(w.shape, generator=generator).to(w.device) for n, w in weights}
        self.prune(drawn, self.to)


@final
class MaskAtTheEnd(Pruner):
    """Prunes the smallest weights to `to` when training is done; nothing is trained after it.

    Arguments:
        model: the network.
        to: the share of all weights that is zero afterwards.
        scope: whether layers are pruned together, each to the same share, or by LAMP scores.
    """

    by_magnitude = True

    def __init__(self, model: nn.Module, *, to: float, scope: Scope = "network"):
        super().__init__(model, scope=scope)
        self.check(to)
        self.to = to

    def at_the_end(self) -> None:
        self.prune(self.magnitudes(), self.to)
