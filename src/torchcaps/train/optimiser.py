"""The optimiser of a recipe, and the learning rate at every update."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from torchcaps.train.recipe import Recipe

__all__ = ["make_optimiser", "rate_factor"]


def make_optimiser(recipe: Recipe, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam as printed, where decay is part of the gradient; AdamW, where it is not; or SGD."""
    how: dict[str, Any] = {
        "lr": recipe.learning_rate,
        "weight_decay": recipe.weight_decay,
        # A fused one divides float16's loss scale out by itself, later than gradients are measured.
        "fused": recipe.precision != "float16",
    }
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(parameters, momentum=recipe.momentum, **how)
    kind = torch.optim.Adam if recipe.optimiser == "adam" else torch.optim.AdamW
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
