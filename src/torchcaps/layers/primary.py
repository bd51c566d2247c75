"""Primary capsules: the first poses, read off the channels of a feature map.

A projection is any module from feature map to feature map whose channels are types × `d_out`: a
convolution [gu2021] §2, or a depthwise one that covers the whole map, which leaves no positions
[renzulli2025] §4.3.1. Capsules come ordered (h, w, type).
"""

from typing import final, get_args

import torch
from torch import Tensor, nn

from torchcaps._checks import check_choice
from torchcaps.errors import TorchcapsError
from torchcaps.layers.capsule_layer import check_sizes
from torchcaps.ops.routing.common import capsules
from torchcaps.ops.squashing import Squash
from torchcaps.ops.squashing import squash as g
from torchcaps.types import Capsules


@final
class PrimaryCapsules(nn.Module):
    """Poses squashed: a length says how sure a capsule is.

    Arguments:
        projection: from features to the components of all poses, [b, types * d_out, h, w].
        d_out: components of a capsule.
        squash: the length of a capsule: "hinton", "exp" or "none", as in `ops.squash`.

    >>> primary = PrimaryCapsules(nn.Conv2d(256, 256, 9, stride=2), d_out=8)
    >>> primary(torch.rand(2, 256, 20, 20)).pose.shape
    torch.Size([2, 1152, 8])
    """

    def __init__(self, projection: nn.Module, *, d_out: int, squash: Squash = "hinton"):
        super().__init__()
        check_sizes("PrimaryCapsules", d_out=d_out)
        check_choice("squash", squash, get_args(Squash))
        self.projection = projection
        self.d_out = d_out
        self.squash: Squash = squash

    def forward(self, features: Tensor) -> Capsules:
        return capsules(g(poses_of(self.projection(features), self.d_out), self.squash))


@final
class LayerNormPrimaryCapsules(nn.Module):
    """Poses normalised over their components, one scale and offset for all capsules [tsai2020] §2,
    Table 8. They carry an activation only if there is a projection for it (ablation C, §5).

    Arguments:
        projection: from features to the components of all poses, [b, types * d_out, h, w].
        activation: from features to one number a capsule, [b, types, h, w]; None: capsules have
            none.
        d_out: components of a capsule.

    >>> layer = LayerNormPrimaryCapsules(nn.Conv2d(32, 32 * 16, 1), d_out=16)
    >>> layer(torch.rand(2, 32, 6, 6)).pose.shape
    torch.Size([2, 1152, 16])
    """

    def __init__(self, projection: nn.Module, activation: nn.Module | None = None, *, d_out: int):
        super().__init__()
        check_sizes("LayerNormPrimaryCapsules", d_out=d_out)
        self.projection = projection
        self.activation = activation
        self.d_out = d_out
        self.norm = nn.LayerNorm(d_out)

    def forward(self, features: Tensor) -> Capsules:
        poses = self.norm(poses_of(self.projection(features), self.d_out))
        if self.activation is None:
            return Capsules(poses)
        return Capsules(poses, _activations(self.activation(features), poses))


@final
class EMPrimaryCapsules(nn.Module):
    """Poses as they are, and an activation from a projection of its own through a sigmoid
    [tsai2020] Table 6, from [hinton2018]. `offset` is added before it: −1 in the code of the
    latter.

    Arguments:
        projection: from features to the components of all poses, [b, types * d_out, h, w].
        activation: from features to one number a capsule, [b, types, h, w].
        d_out: components of a capsule.
        offset: added before the sigmoid.

    >>> layer = EMPrimaryCapsules(nn.Conv2d(32, 32 * 16, 1), nn.Conv2d(32, 32, 1), d_out=16)
    >>> layer(torch.rand(2, 32, 6, 6)).activation.shape
    torch.Size([2, 1152])
    """

    def __init__(
        self, projection: nn.Module, activation: nn.Module, *, d_out: int, offset: float = 0.0
    ):
        super().__init__()
        check_sizes("EMPrimaryCapsules", d_out=d_out)
        self.projection = projection
        self.activation = activation
        self.d_out = d_out
        self.offset = offset

    def forward(self, features: Tensor) -> Capsules:
        poses = poses_of(self.projection(features), self.d_out)
        return Capsules(poses, _activations(self.activation(features) + self.offset, poses))


def poses_of(maps: Tensor, size: int) -> Tensor:
    """Give poses [b, h * w * types, d] of maps [b, types * d, h, w]."""
    if maps.ndim != 4 or maps.shape[1] % size:
        raise TorchcapsError(
            f"primary capsules of {size} components need a feature map [batch, channel, "
            f"height, width] with a multiple of {size} channels, but the projection gave "
            f"shape {list(maps.shape)}."
        )
    poses = torch.unflatten(maps, 1, (-1, size))  # [b, types, d, h, w]
    return torch.flatten(poses.permute(0, 3, 4, 1, 2), 1, 3)  # [b, h * w * types, d]


def _activations(maps: Tensor, poses: Tensor) -> Tensor:
    active = maps.sigmoid().permute(0, 2, 3, 1).flatten(1)  # [b, h * w * types]
    if active.shape != poses.shape[:-1]:
        raise TorchcapsError(
            f"every capsule needs one activation, but the projections gave poses "
            f"{list(poses.shape)} and activations {list(maps.shape)}; the activation needs as "
            f"many channels as there are capsule types, at the same positions."
        )
    return active
