"""The optimiser of a recipe, and the learning rate at every update."""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from torchcaps.train.recipe import Optimiser, Recipe

__all__ = ["OPTIMISERS", "make_optimiser", "rate_factor"]

# Those of a recipe, as reports call them.
OPTIMISERS: Mapping[Optimiser, tuple[str, type[torch.optim.Optimizer]]] = MappingProxyType(
    {
        # As printed, where decay is part of the gradient.
        "adam": ("Adam", torch.optim.Adam),
        # Where it is not.
        "adamw": ("AdamW", torch.optim.AdamW),
        "sgd": ("SGD", torch.optim.SGD),
    }
)


def make_optimiser(recipe: Recipe, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimiser that a recipe names, with its options."""
    how: dict[str, Any] = {
        "lr": recipe.learning_rate,
        "weight_decay": recipe.weight_decay,
        # A fused one divides float16's loss scale out by itself, later than gradients are measured.
        "fused": recipe.precision != "float16",
    }
    if recipe.optimiser == "sgd":
        how["momentum"] = recipe.momentum
    _, kind = OPTIMISERS[recipe.optimiser]
    return kind(parameters, **how)


def rate_factor(recipe: Recipe, step: int, steps_an_epoch: int) -> float:
    """What the learning rate is multiplied by in update `step`, counted from 0."""
    epoch = step // steps_an_epoch
    if recipe.schedule == "steps":
        return recipe.decay ** sum(epoch >= milestone for milestone in recipe.milestones)
    if recipe.schedule == "exponential":
        return recipe.decay ** (epoch if recipe.decay_every is None else step // recipe.decay_every)
    if recipe.schedule == "cosine":
        return (1 + math.cos(math.pi * step / (recipe.epochs * steps_an_epoch))) / 2
    return 1.0
