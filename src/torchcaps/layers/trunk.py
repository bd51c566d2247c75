"""A frozen trunk: maps of a network trained before, on which capsules are trained.

[renzulli2025] C.3 puts capsules on a ResNet-18 for Tiny ImageNet. Its public code takes the maps of
512 × 7 × 7 that ResNet-18 for ImageNet makes of 224 × 224 pixels, and frames them with six zeros.
"""

from typing import Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from torchcaps.layers.backbone import imagenet_backbone, residual_backbone
from torchcaps.ops.checks import check_choice

__all__ = ["FrozenTrunk", "TrunkKind"]

TrunkKind = Literal["resnet18", "resnet18_imagenet"]
FRAME = 6
WIDTH = 512


class FrozenTrunk(nn.Module):
    """Maps [b, 512, h, w] of a ResNet-18 with zeros around, which training leaves as they are.

    Its weights are drawn at random until `models.take_trunk` gives it those of a trained network.

    Arguments:
        channels: of the images.
        kind: "resnet18" for small images, an eighth of their height and width; or
            "resnet18_imagenet", a thirty-second.

    >>> feature_shape(FrozenTrunk(3, "resnet18"), (3, 32, 32))  # doctest: +SKIP
    """

    def __init__(self, channels: int, kind: TrunkKind):
        super().__init__()
        check_choice("trunk", kind, ("resnet18", "resnet18_imagenet"))
        self.kind: TrunkKind = kind
        self.maps = (
            residual_backbone(channels, (64, 2), (128, 2), (256, 2), (WIDTH, 2))
            if kind == "resnet18"
            else imagenet_backbone(channels)
        )
        self.maps.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Self:
        """Batch normalisation goes by the statistics that it came with, in training too."""
        super().train(mode)
        self.maps.eval()
        return self

    def forward(self, image: Tensor) -> Tensor:
        with torch.no_grad():
            return pad(self.maps(image), (FRAME,) * 4)
