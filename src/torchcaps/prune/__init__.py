"""Pruning: which weights are set to zero while a network trains, and what stays when they are.

One interface, `Pruner`, says what happens after the backward pass, after a step and after an epoch;
a file for every way of choosing. Training with one of them is `train.fit` with `prune` in the
recipe.
"""

from torchcaps._lazy import publish
from torchcaps.prune.controls import MaskAtTheEnd as MaskAtTheEnd
from torchcaps.prune.controls import RandomMasks as RandomMasks
from torchcaps.prune.lobster import Lobster as Lobster
from torchcaps.prune.magnitude import Magnitude as Magnitude
from torchcaps.prune.magnitude import ramp as ramp
from torchcaps.prune.masks import Masks as Masks
from torchcaps.prune.masks import lowest as lowest
from torchcaps.prune.pruner import Pruner as Pruner
from torchcaps.prune.pruner import Scope as Scope
from torchcaps.prune.pruner import lamp as lamp
from torchcaps.prune.snip import Snip as Snip
from torchcaps.prune.weights import Sparsity as Sparsity
from torchcaps.prune.weights import prunable as prunable
from torchcaps.prune.weights import sparsity as sparsity

publish(__name__)
