"""The optimiser of a recipe, and the learning rate at every update."""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, short
from torchcaps.models.own import as_given
from torchcaps.train.recipe import Optimiser, Recipe

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


def slower_weights(recipe: Recipe, model: nn.Module) -> Iterable[nn.Parameter]:
    """List those weights that `backbone_rate` is for; none where it is one."""
    if recipe.backbone_rate == 1:
        return ()
    backbone = getattr(as_given(model), "backbone", None)
    if not isinstance(backbone, nn.Module):
        raise TorchcapsError(
            f"backbone_rate={recipe.backbone_rate:g} is for a network with a part `backbone`, "
            f"which this one has not; leave it out."
        )
    return backbone.parameters()


def make_optimiser(
    recipe: Recipe, parameters: Iterable[nn.Parameter], *, slower: Iterable[nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """Give the optimiser of a recipe; `slower` weights have a `share` of the rate, as a group."""
    weights, slow = list(parameters), set(map(id, slower))
    how: dict[str, Any] = {
        "lr": recipe.learning_rate,
        "weight_decay": recipe.weight_decay,
        # A fused one divides float16's loss scale out by itself, later than gradients are measured.
        "fused": recipe.precision != "float16",
    }
    if recipe.optimiser == "sgd":
        how["momentum"] = recipe.momentum
    elif weights and weights[0].device.type == "cuda":
        # Its count of updates may be kept by a GPU that repeats a step alone.
        how["capturable"] = True
    _, kind = OPTIMISERS[recipe.optimiser]
    groups: list[Any] = weights
    if slow:
        share = recipe.backbone_rate
        groups = [
            {"params": [weight for weight in weights if id(weight) not in slow]},
            {
                "params": [weight for weight in weights if id(weight) in slow],
                "lr": share * recipe.learning_rate,
                "share": share,
            },
        ]
    return kind(groups, **how)


@torch.no_grad()
def lay_out(optimiser: torch.optim.Optimizer) -> None:
    """Lay out what the optimiser keeps of each weight as the weight is, or refuse it: a fused step
    reads and writes as many numbers as the weight has, wherever they lie."""
    weights = (weight for group in optimiser.param_groups for weight in group["params"])
    for weight in weights:
        kept = optimiser.state.get(weight, {})
        for name, value in kept.items():
            if not isinstance(value, Tensor):
                continue
            like = value.new_empty(()) if name == "step" else weight
            if value.shape != like.shape:
                raise TorchcapsError(
                    f"the state of this run keeps {short(name)} of size {tuple(value.shape)} where "
                    f"its network has {tuple(like.shape)}; it is damaged, or of another network: "
                    f"remove state.ckpt, and the run begins anew."
                )
            kept[name] = torch.empty_like(like).copy_(value)


def rate_factor(recipe: Recipe, step: int, steps_an_epoch: int) -> float:
    """Give what the learning rate is multiplied by in update `step`, counted from 0."""
    epoch = step // steps_an_epoch
    if recipe.schedule == "steps":
        return recipe.decay ** sum(epoch >= milestone for milestone in recipe.milestones)
    if recipe.schedule == "exponential":
        return recipe.decay ** (epoch if recipe.decay_every is None else step // recipe.decay_every)
    if recipe.schedule == "cosine":
        return (1 + math.cos(math.pi * step / (recipe.epochs * steps_an_epoch))) / 2
    return 1.0
