"""A frozen trunk: maps of a network trained before, on which capsules are trained.

[renzulli2025] C.3 puts capsules on a ResNet-18 for Tiny ImageNet. Its public code takes the maps of
512 × 7 × 7 that ResNet-18 for ImageNet makes of 224 × 224 pixels, and frames them with six zeros.
"""

import logging
from typing import Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from torchcaps._checks import check_choice
from torchcaps.layers.backbone import ImagenetMaps, Maps, maps_after, residual_backbone
from torchcaps.ops.checks import has_values
from torchcaps.ops.tracing import is_looked_through

TrunkKind = Literal["resnet18", "resnet18_imagenet"]
FRAME = 6
WIDTH = 512


class FrozenTrunk(nn.Module):
    """Maps [b, 512, h, w] of a ResNet-18 with zeros around, which training leaves as they are.

    Its weights are drawn at random until `models.take_trunk` gives it those of a trained network.
    As long as they are, the first images that it sees make it say so, on standard error.

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
            else ImagenetMaps(channels)
        )
        self.maps.requires_grad_(False).eval()
        self._was_looked_at = False

    def train(self, mode: bool = True) -> Self:
        """Let batch normalisation go by the statistics that it came with, in training too."""
        super().train(mode)
        self.maps.eval()
        return self

    def forward(self, image: Tensor) -> Tensor:
        self._tell_if_random()
        with torch.no_grad():
            return pad(self.maps(image), (FRAME,) * 4)

    def maps_after(self, maps: Maps) -> Maps | None:
        found = maps_after(self.maps, maps)
        return found and (found[0], found[1] + 2 * FRAME, found[2] + 2 * FRAME)

    def _tell_if_random(self) -> None:
        """Once, where that can be seen. No training leaves the statistics of batch normalisation at
        the zeros that they begin with, so weights from anywhere are told from random ones."""
        mean = next(value for name, value in self.maps.named_buffers() if "running_mean" in name)
        if self._was_looked_at or not has_values(mean) or is_looked_through():
            return
        self._was_looked_at = True
        if not mean.any():
            logging.getLogger("torchcaps").warning(
                "the frozen trunk %s has random weights, which training leaves as they are; give "
                "it those of a trained network: models.take_trunk(network, file).",
                self.kind,
            )
