"""Balanced initialisation, ours: every routed layer starts with parents of middling length.

With W ~ N(0, 0.1²), the custom for one routed layer, the squashed lengths of a stack vanish from
layer to layer, with larger weights they saturate, and either way it does not learn. A closed form
for the scale drifts with depth, so it is measured from the bottom up: each layer gets the smallest
scale at which its own routing gives parents of mean length `target`. Weights stay as they were
drawn; a layer multiplies them by one number.

Which target: on MNIST ten layers with exp squash and dynamic routing learn the faster the shorter
their poses start. After the first of three epochs, target 0.2 has 76 to 83 % right, 0.3 has 67 to
79 %, 0.55 has 17 to 24 %, while N(0, 0.1²) stays at chance and N(0, 1), whose poses shorten from
0.64 to 0.12, does as well as 0.25; 0.3 keeps clear of 0.2, the least target. With hinton squash
short poses drift apart with depth, since they scale as a square: 0.4. Ten uniform layers then
learn, while ten of dynamic routing stayed at chance from 0.3 to 0.6, one seed each
(benchmarks/records/balanced_init.json; three seeds with exp).
"""

import math
from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import nn

from torchcaps._checks import check_number
from torchcaps.errors import TorchcapsError
from torchcaps.layers.capsule_layer import CapsuleLayer
from torchcaps.layers.routing.dynamic import DynamicRouting
from torchcaps.types import Capsules

TARGETS = {"exp": 0.3, "hinton": 0.4}
LEAST = 0.2  # layers with shorter parents than this are not balanced
LARGEST, TINY = 2.0**20, 1e-30
BISECTIONS = 5  # the scale to one per cent


def balance(
    layers: Mapping[str, nn.Module], children: Capsules, *, target: float | None = None
) -> Capsules:
    """Scale the weights of stacked layers, lowest first, for these children; gives the top parents.

    `target` is 0.3 for layers with exp squash and 0.4 with hinton, unless told otherwise. Lengths
    differ between batches of children, so take many: 64 sets of them, or 32 images. What
    `weight_std` was does not matter, if it was not 0. Layers on device "meta" stay as they are.

    >>> sizes = {"n_in": 16, "d_in": 8, "n_out": 16, "d_out": 8}
    >>> layers = {f"hidden_{depth}": DenseCapsules(**sizes) for depth in range(2, 11)}
    >>> balance(layers, children).activation.mean()
    tensor(0.4)
    """
    if target is not None:
        check_number("target", target, least=LEAST, most=0.6)
    for name, layer in layers.items():
        routing = getattr(layer, "routing", layer)
        if not is_squashed(routing):
            raise TorchcapsError(
                f'init="balanced" sets squashed lengths, but layer {name!r} has '
                f"{type(routing).__name__} and no squash to set them by; use dynamic or uniform "
                f'routing with squash "hinton" or "exp", or init="paper".'
            )
    # The routing of γ-capsules keeps a mean of distances in a buffer; trials must leave no trace.
    before = [(buffer, buffer.clone()) for each in layers.values() for buffer in each.buffers()]
    with torch.no_grad():
        for name, layer in layers.items():
            layer = cast(CapsuleLayer, layer)
            if not layer.weight.is_meta:
                _scale(name, layer, children, target or TARGETS[str(layer.routing.squash)])
                children = layer(children).parents
    for buffer, kept in before:
        buffer.copy_(kept)
    return children


def is_squashed(module: nn.Module) -> bool:
    """Say whether it gives poses a length in [0, 1)."""
    return getattr(module, "squash", None) in TARGETS


def find_scale(length: Callable[[float], float], target: float) -> float | None:
    """Give the smallest scale at which `length`, which first rises, is `target`.

    Routing by agreement saturates: beyond some scale couplings are one-hot and the mean length
    falls. Where the target is above that peak, go nine tenths of the way up to it, or give up
    (None) if this is below 0.2.
    """
    scales, lengths = [1.0], [length(1.0)]
    while lengths[-1] < target and scales[-1] < LARGEST:
        scales.append(2 * scales[-1])
        lengths.append(length(scales[-1]))
    if lengths[-1] < target:
        target = 0.9 * max(lengths)
        if target < LEAST:
            return None
    high = next(s for s, reached in zip(scales, lengths, strict=True) if reached >= target)
    low = high / 2
    while length(low) >= target:
        low, high = low / 2, low
        if low < 1 / LARGEST:
            return None
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if length(middle) >= target else (middle, high)
    return math.sqrt(low * high)


def _scale(name: str, layer: CapsuleLayer, children: Capsules, target: float) -> None:
    drawn = layer.weight.clone()
    # Weights of deviation 1/16, below the peak of any layer, whatever they were drawn with.
    small = drawn / (16 * drawn.square().mean().sqrt()).clamp_min(TINY)
    reached: list[float] = []

    def length(scale: float) -> float:
        layer.weight.copy_(small * scale)
        activation = layer(children).parents.activation
        assert activation is not None
        reached.append(float(activation.mean()))
        return reached[-1]

    scale = find_scale(length, target)
    layer.weight.copy_(drawn if scale is None else small * scale)
    if scale is None:
        raise TorchcapsError(_why(name, layer, target, reached))


def _why(name: str, layer: CapsuleLayer, target: float, reached: list[float]) -> str:
    n_in = layer.n_in
    if layer.window is not None:
        n_in = math.prod(layer.window.kernel) * layer.window.child_grid[-1]
    layer_is = f"layer {name!r} ({n_in} children, {layer.n_out} parents)"
    if max(reached) >= target:
        reason = (
            f"its bias alone gives it mean length {min(reached):.2f}, above {target}; leave out "
            f'the bias, or use init="paper" with a weight_std of your own.'
        )
    elif layer.n_out > 4 * n_in and isinstance(layer.routing, DynamicRouting):
        reason = (
            f"its mean length reaches {max(reached):.2f} and never {LEAST}, because agreement "
            f"leaves each child to few parents; use at most four parents a child, uniform routing, "
            f'or init="paper" with a weight_std of your own.'
        )
    else:
        reason = (
            f"its mean length reaches {max(reached):.2f} and never {LEAST}; are its weights "
            f"(weight_std=0) or its children zero?"
        )
    return f'init="balanced" finds no scale for {layer_is}: {reason}'
