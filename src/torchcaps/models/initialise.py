"""Balanced initialisation of a whole network, on children that its own backbone makes."""

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from torchcaps._checks import check_choice
from torchcaps.layers.balance import TARGETS, balance, find_scale, is_squashed
from torchcaps.layers.primary import PrimaryCapsules
from torchcaps.models.network import CapsuleNetwork
from torchcaps.ops.squashing import squash

# How weights start. "paper": as the paper or its code has them or, where neither says or learns, as
# the network's own Ambiguities say. "balanced": as `layers.balance` measures them. Not offered by
# DeepCaps, whose cells are convolutions, nor by the sign nets, which have twenty parents a child.
Init = Literal["paper", "balanced"]

IMAGES, CELLS, DARKNESS = 32, 7, 1.5


def initialised(network: CapsuleNetwork, init: Init) -> CapsuleNetwork:
    """Give the network, balanced if that is asked for."""
    check_choice("init", init, get_args(Init))
    if init == "balanced":
        balance_network(network)
    return network


def balance_network(network: CapsuleNetwork, *, target: float | None = None) -> None:
    """Scale the projection of the primary capsules, if it is one convolution, then the weights of
    every routed layer, so that all start with mean length `target` (see `balance`).

    It looks at seeded smooth noise in [0, 1], between photographs and digits in brightness: on real
    ones of either sort lengths stay between 0.2 and 0.6. Standardised or very bright images make
    longer poses in a backbone without batch normalisation. A network on "meta" stays as it
    is, and so do running statistics and random numbers.
    """
    weight = next(network.parameters())
    if weight.is_meta:
        return
    images = _smooth_noise(network.image).to(weight)
    with torch.no_grad():
        features = _untouched(network.backbone, images)
        if is_squashed(network.primary):
            _scale_primary(network.primary, features, target)
        children = _untouched(network.primary, features)
    balance(dict(network.layers.items()), children, target=target)


def _smooth_noise(image: tuple[int, int, int]) -> Tensor:
    """Give [b, c, h, w]: random cells blown up to the size of the image."""
    channels, height, width = image
    generator = torch.Generator().manual_seed(0)
    shape = (IMAGES, channels, CELLS, CELLS)
    cells = torch.rand(shape, generator=generator, device="cpu", dtype=torch.float32)
    return nn.functional.interpolate(cells**DARKNESS, size=(height, width), mode="bilinear")


def _untouched(module: nn.Module, value: Tensor) -> Any:
    """Give what the module gives; batch normalisation counts in a copy of its statistics."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    return torch.func.functional_call(module, buffers, value)


def _scale_primary(primary: nn.Module, features: Tensor, target: float | None) -> None:
    if not isinstance(primary, PrimaryCapsules) or not isinstance(primary.projection, nn.Conv2d):
        return
    maps = primary.projection(features)
    pose = maps.unflatten(1, (-1, primary.d_out)).movedim(2, -1)
    kind = primary.squash

    def length(scale: float) -> float:
        return float(squash(scale * pose, kind).norm(dim=-1).mean())

    scale = find_scale(length, target or TARGETS[kind])
    assert scale is not None
    for parameter in primary.projection.parameters():
        parameter.mul_(scale)
