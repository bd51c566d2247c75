"""Primary capsules: the first poses, read off the channels of a feature map."""

from typing import get_args

from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.ops.checks import check_choice
from torchcaps.ops.routing.common import capsules
from torchcaps.ops.squash import Squash
from torchcaps.ops.squash import squash as g
from torchcaps.types import Capsules

__all__ = ["PrimaryCapsules"]


class PrimaryCapsules(nn.Module):
    """Group the channels of `projection`'s output into capsules of `d_out` components, squashed.

    `projection` is any module from feature map to feature map whose channels are types × `d_out`: a
    convolution [gu2021] §2, or a depthwise one that covers the whole map, which leaves no positions
    [renzulli2025] §4.3.1. Capsules come ordered (h, w, type).

    >>> primary = PrimaryCapsules(nn.Conv2d(256, 256, 9, stride=2), d_out=8)
    >>> primary(torch.rand(2, 256, 20, 20)).pose.shape
    torch.Size([2, 1152, 8])
    """

    def __init__(self, projection: nn.Module, *, d_out: int, squash: Squash = "hinton"):
        super().__init__()
        if d_out < 1:
            raise TorchcapsError(f"PrimaryCapsules needs d_out of at least 1, but got {d_out}.")
        check_choice("squash", squash, get_args(Squash))
        self.projection = projection
        self.d_out = d_out
        self.squash: Squash = squash

    def forward(self, features: Tensor) -> Capsules:
        maps = self.projection(features)  # [b, types * d, h, w]
        if maps.ndim != 4 or maps.shape[1] % self.d_out:
            raise TorchcapsError(
                f"primary capsules of {self.d_out} components need a feature map [batch, channel, "
                f"height, width] with a multiple of {self.d_out} channels, but the projection gave "
                f"shape {list(maps.shape)}."
            )
        poses = maps.unflatten(1, (-1, self.d_out))  # [b, types, d, h, w]
        poses = poses.permute(0, 3, 4, 1, 2).flatten(1, 3)  # [b, h * w * types, d]
        return capsules(g(poses, self.squash))
