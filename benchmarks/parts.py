"""The fast parts of torchcaps that stand beside an ordinary way to the same numbers, each with a
switch of its own: what is a network's step worth without it?

Layers are found by the names of their classes, so that the switches also work on a torchcaps of
another commit, where a part may live elsewhere or not at all.
"""

from collections.abc import Iterator

from torch import nn

from torchcaps.ops import fused, native

# Layers that compute directly, or in PyTorch, when `is_direct` is True.
LAYERS = {
    "fourier": "LargeConv2d",
    "winograd": "SmallConv2d",
    "whole-map": "WholeMapConv2d",
}
# Native kernels of a routing, which the fused form in PyTorch replaces.
KERNELS = {
    "native-dynamic": "DynamicRouting",
    "native-distance": "DistanceRouting",
    "native-em": "EMRouting",
}
PARTS = (*LAYERS, *KERNELS)

# How a layer asks itself whether to take what pays for large batches.
QUESTIONS = {
    "Routing": "fuses",
    "LargeConv2d": "pays",
    "SmallConv2d": "_pays",
}


def switch_off(part: str, module: nn.Module) -> None:
    """Have a module compute without a fast part, in this process alone."""
    if part in LAYERS:
        for layer in _named(module, LAYERS[part]):
            layer.is_direct = True
        return
    stem = part.removeprefix("native-")
    for name in vars(fused).keys() & vars(native).keys():
        if name.startswith(f"{stem}_"):
            setattr(native, name, getattr(fused, name))
    # A case builds its network more than once.
    native.ROUTINGS.pop(stem, None)


def is_in(part: str, module: nn.Module) -> bool:
    """Whether a module has a layer that the part can make faster."""
    return any(True for _ in _named(module, (LAYERS | KERNELS)[part]))


def with_a_choice(module: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """The layers that choose by the size of a batch: name, layer, the method that chooses."""
    for name, layer in module.named_modules():
        for kind in type(layer).__mro__:
            if kind.__name__ in QUESTIONS:
                yield name, layer, QUESTIONS[kind.__name__]


def _named(module: nn.Module, kind: str) -> Iterator[nn.Module]:
    return (layer for layer in module.modules() if type(layer).__name__ == kind)
