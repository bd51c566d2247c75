"""The deep networks of [mitterreiter2023] §4.1; [renzulli2025] B.1 draws the same shape.

Backbone – 16 primary capsules × 8 – three hidden layers of 16 × 8 – n_classes × 8, so four routed
layers with learned priors and exp squash; decoder. Its uniform twin is `routing="uniform"`: the
same weights drawn, couplings fixed.

mitterreiter_5x16   that network
mitterreiter_grid   the grid of 121 architectures in the missing appendix, as options: `widths` are
                    the capsules of every layer below the classes, from the primary one up, `d_pose`
                    their components. The narrow twin is uniform with as many capsules in a layer as
                    the other has alive: widths="16,15,7,6".
rem_multilayer      the network of [renzulli2025] B.1: the same layers, priors zero, hinton squash,
                    votes constant in all but the last iteration, no decoder

Departures: none known; the appendix that would tell is not public.
Ambiguities:
1. Backbone: that of Efficient-CapsNet [mazzia2021], then a depthwise convolution over the whole
   map, and a linear map where the capsules do not fill its channels.
2. Iterations: 3.
3. Initial weights: N(0, `weight_std`²) with 1.0, at which both twins learn. At 0.1, the custom for
   one routed layer and what public code of [renzulli2025] has, lengths vanish from layer to layer
   and the network stays at chance.
4. A ReLU before the primary squash: `primary_relu`, off; none is mentioned.
5. [renzulli2025] does not say how its multilayer network is routed; it is their DR-CapsNet, deeper.
"""

from functools import partial
from typing import Literal

from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers import (
    Decoder,
    PrimaryCapsules,
    efficient_backbone,
    feature_shape,
    whole_map,
)
from torchcaps.layers.backbone import rectified
from torchcaps.models.initialise import Init, initialised
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.stack import dense_stack
from torchcaps.ops.routing import Detach
from torchcaps.ops.squashing import Squash

__all__ = ["mitterreiter_5x16", "mitterreiter_grid", "rem_multilayer"]


def mitterreiter_grid(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    widths: str = "16,16,16,16",
    d_pose: int = 8,
    routing: str = "dynamic",
    iterations: int = 3,
    bias: bool = False,
    prior: Literal["zero", "learned"] = "learned",
    squash: Squash = "exp",
    detach: Detach = "none",
    primary_relu: bool = False,
    weight_std: float = 1.0,
    init: Init = "paper",
    decoder: bool = True,
) -> CapsuleNetwork:
    n_primary, *hidden = _counts(widths)
    backbone = efficient_backbone(image[0])
    channels, height, width = feature_shape(backbone, image)
    projection: nn.Module = whole_map(channels, height, width)
    if n_primary * d_pose != channels:
        projection = nn.Sequential(projection, nn.Conv2d(channels, n_primary * d_pose, 1))
    sizes = {f"hidden_{depth}": (n, d_pose) for depth, n in enumerate(hidden, start=2)}
    network = CapsuleNetwork(
        image=image,
        backbone=backbone,
        primary=PrimaryCapsules(rectified(projection, primary_relu), d_out=d_pose, squash=squash),
        primary_grid=(1, 1, n_primary),
        layers=dense_stack(
            sizes | {"classes": (n_classes, d_pose)},
            n_in=n_primary,
            d_in=d_pose,
            weight_std=weight_std,
            routing=routing,
            bias=bias,
            iterations=iterations,
            prior=prior,
            squash=squash,
            detach=detach,
        ),
        decoder=Decoder(n_classes=n_classes, d_in=d_pose, image=image) if decoder else None,
    )
    return initialised(network, init)


def mitterreiter_5x16(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    routing: str = "dynamic",
    iterations: int = 3,
    bias: bool = False,
    primary_relu: bool = False,
    weight_std: float = 1.0,
    init: Init = "paper",
    decoder: bool = True,
) -> CapsuleNetwork:
    return mitterreiter_grid(
        image=image,
        n_classes=n_classes,
        routing=routing,
        iterations=iterations,
        bias=bias,
        primary_relu=primary_relu,
        weight_std=weight_std,
        init=init,
        decoder=decoder,
    )


rem_multilayer = partial(
    mitterreiter_grid, prior="zero", squash="hinton", detach="votes", decoder=False
)


def _counts(widths: str) -> list[int]:
    try:
        counts = [int(width) for width in widths.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise TorchcapsError(
            f"widths must be the capsules of each layer below the classes, from the primary one "
            f"up, as in '16,16,16,16', but came as {widths!r}."
        )
    return counts
