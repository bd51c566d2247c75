"""The five-layer network of [mitterreiter2023] §4.1, drawn by [renzulli2025] B.1 too.

Backbone – 16 primary capsules × 8 – three hidden layers of 16 × 8 – n_classes × 8, so four routed
layers with learned priors and exp squash; decoder. Its uniform twin is `routing="uniform"`: the
same weights drawn, couplings fixed.

Departures: none known; the appendix that would tell is not public.
Ambiguities:
1. Backbone: that of Efficient-CapsNet [mazzia2021], then a depthwise convolution over the whole
   map.
2. Iterations: 3.
3. Initial weights: N(0, `weight_std`²) with 1.0, at which both twins learn. At 0.1, the custom for
   one routed layer, lengths vanish from layer to layer and the network stays at chance.
"""

from torch import nn

from torchcaps.layers import (
    Decoder,
    DenseCapsules,
    PrimaryCapsules,
    efficient_backbone,
    feature_shape,
    make_routing,
)
from torchcaps.models.network import CapsuleNetwork

__all__ = ["mitterreiter_5x16"]

N_CAPSULES, D_POSE = 16, 8
HIDDEN = ("hidden_2", "hidden_3", "hidden_4")


def mitterreiter_5x16(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    routing: str = "dynamic",
    iterations: int = 3,
    bias: bool = False,
    weight_std: float = 1.0,
    decoder: bool = True,
) -> CapsuleNetwork:
    backbone = efficient_backbone(image[0])
    channels, height, width = feature_shape(backbone, image)
    whole_map = nn.Conv2d(channels, channels, (height, width), groups=channels)
    sizes = dict.fromkeys(HIDDEN, N_CAPSULES) | {"classes": n_classes}
    layers = {
        name: DenseCapsules(
            n_in=N_CAPSULES,
            d_in=D_POSE,
            n_out=n_out,
            d_out=D_POSE,
            routing=make_routing(
                routing, iterations=iterations, prior="learned", bias=bias, squash="exp"
            ),
            weight_std=weight_std,
        )
        for name, n_out in sizes.items()
    }
    return CapsuleNetwork(
        image=image,
        backbone=backbone,
        primary=PrimaryCapsules(whole_map, d_out=D_POSE, squash="exp"),
        primary_grid=(1, 1, N_CAPSULES),
        layers=layers,
        decoder=Decoder(n_classes=n_classes, d_in=D_POSE, image=image) if decoder else None,
    )
