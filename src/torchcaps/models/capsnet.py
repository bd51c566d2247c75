"""CapsNet of [sabour2017] as [gu2021] §3 and [renzulli2025] §4.2 use it.

Conv(256, 9×9, stride 1) ReLU – 32 types × 8 primary capsules by Conv(256, 9×9, stride 2), squash –
n_classes × 16 class capsules by dynamic routing – decoder FC 512, 1024, pixels.

Departures: none from the paper; unlike its code there is no division by 32 in the primary layer.
Ambiguities:
1. A ReLU before the primary squash: none, as in the code of [sabour2017]; [gu2021] reads otherwise.
2. The class bias: off, as the printed parameter counts of [gu2021] and [renzulli2025] say; the code
   of [sabour2017] has one. `bias=True` turns it on.
"""

from torch import nn

from torchcaps.layers import (
    Decoder,
    DenseCapsules,
    PrimaryCapsules,
    feature_shape,
    make_routing,
    sabour_backbone,
)
from torchcaps.models.network import CapsuleNetwork

__all__ = ["capsnet"]

D_PRIMARY, D_CLASS = 8, 16


def capsnet(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    routing: str = "dynamic",
    iterations: int = 3,
    bias: bool = False,
    weight_std: float = 0.1,
    decoder: bool = True,
) -> CapsuleNetwork:
    backbone = sabour_backbone(image[0])
    primary = PrimaryCapsules(nn.Conv2d(256, 256, 9, stride=2), d_out=D_PRIMARY)
    channels, height, width = feature_shape(nn.Sequential(backbone, primary.projection), image)
    types = channels // D_PRIMARY
    classes = DenseCapsules(
        n_in=height * width * types,
        d_in=D_PRIMARY,
        n_out=n_classes,
        d_out=D_CLASS,
        routing=make_routing(routing, iterations=iterations, bias=bias),
        weight_std=weight_std,
    )
    return CapsuleNetwork(
        image=image,
        backbone=backbone,
        primary=primary,
        primary_grid=(height, width, types),
        layers={"classes": classes},
        decoder=Decoder(n_classes=n_classes, d_in=D_CLASS, image=image) if decoder else None,
    )
