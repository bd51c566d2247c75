"""Pruning: which weights are set to zero while a network trains, and what stays when they are.

One interface, `Pruner`, says what happens after the backward pass, after a step and after an epoch;
a file for every way of choosing. Training with one of them is `train.fit` with `prune` in the
recipe.
"""

from torchcaps.prune.controls import MaskAtTheEnd, RandomMasks
from torchcaps.prune.lobster import Lobster
from torchcaps.prune.magnitude import Magnitude, ramp
from torchcaps.prune.masks import Masks, lowest
from torchcaps.prune.pruner import Pruner, Scope, lamp
from torchcaps.prune.snip import Snip
from torchcaps.prune.weights import Sparsity, prunable, sparsity

__all__ = [
    "Lobster",
    "Magnitude",
    "MaskAtTheEnd",
    "Masks",
    "Pruner",
    "RandomMasks",
    "Scope",
    "Snip",
    "Sparsity",
    "lamp",
    "lowest",
    "prunable",
    "ramp",
    "sparsity",
]
