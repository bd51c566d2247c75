"""Training images changed a little, anew in every epoch: shifts, crops, flips and affine maps.

shift2       shifted by -2 to 2 whole pixels along each axis, as [sabour2017] §5 does with MNIST
shift2-flip  and mirrored half of the times: Fashion-MNIST in public code of [renzulli2025]
crop4-flip   shifted by -4 to 4, which is a crop of the image framed by 4 zeros, and mirrored half
             of the times: CIFAR in [tsai2020] App. A.2
affine       a small affine map: see `affine`

The change of an image depends on the seed and its sample number alone, never on the batch.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor

from torchcaps.data.batch import Images
from torchcaps.data.changed_images import ChangedImages
from torchcaps.data.draws import integers, uniform
from torchcaps.data.warp import linear_maps, place, warp
from torchcaps.errors import TorchcapsError, nearest

__all__ = ["AUGMENTATIONS", "Augmented", "affine", "augmented"]

Augmentation = Callable[[Tensor, int, Tensor], Tensor]

# Streams of their own: makers draw from the lower ones, maybe with the same seed.
_SHIFT, _FLIP, _MAP = range(100, 103)


def affine(pixels: Tensor, seed: int, sample: Tensor) -> Tensor:
    """Turned, leant, stretched and shifted, each by an even draw.

    Rotation up to 15 degrees, shear up to 0.1, each axis stretched by 0.9 to 1.1 on its own, shift
    up to 2.5 pixels of 28 (a larger image moves as much farther).

    Departures:
    1. Of what public code of [mazzia2021] does to MNIST, erased patches are left out and rotations
       are drawn evenly, not from a normal distribution: the limits are our own.
    """
    u = uniform(seed, sample, _MAP, 6, pixels.device).to(pixels.dtype)
    either_way = u * 2 - 1
    turn, lean = either_way[:, 0] * math.radians(15), either_way[:, 1] * 0.1
    stretch = u[:, 2:4] * 0.2 + 0.9
    height, width = pixels.shape[2:]
    shift = [either_way[:, 4] * (2.5 / 28 * width), either_way[:, 5] * (2.5 / 28 * height)]
    linear = linear_maps(turn, lean, stretch[:, 0], stretch[:, 1])
    return warp(pixels, torch.cat([linear, torch.stack(shift, -1)[..., None]], -1))


def _shifted(pixels: Tensor, seed: int, sample: Tensor, *, most: int) -> Tensor:
    return place(pixels, integers(seed, sample, _SHIFT, 2, 2 * most + 1) - most)


def _shifted_flipped(pixels: Tensor, seed: int, sample: Tensor, *, most: int) -> Tensor:
    mirrored = integers(seed, sample, _FLIP, 1, 2)[..., None, None].to(pixels.device) == 1
    moved = _shifted(pixels, seed, sample, most=most)
    return torch.where(mirrored, moved.flip(-1), moved)


AUGMENTATIONS: Mapping[str, Augmentation] = MappingProxyType(
    {
        "affine": affine,
        "crop4-flip": partial(_shifted_flipped, most=4),
        "shift2": partial(_shifted, most=2),
        "shift2-flip": partial(_shifted_flipped, most=2),
    }
)


@dataclass(frozen=True)
class Augmented(ChangedImages):
    """Images changed in every epoch anew; `augmented` makes one."""

    augmentation: str
    seed: int = 0

    def __post_init__(self) -> None:
        name = self.augmentation
        if name not in AUGMENTATIONS:
            raise TorchcapsError(
                f"augmentation {name!r} is unknown; {nearest(name, AUGMENTATIONS)}."
            )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.images.image_shape

    def _change(self, pixels: Tensor, sample: Tensor) -> Tensor:
        return AUGMENTATIONS[self.augmentation](pixels, self.seed, sample)

    def digest(self) -> str:
        """That of the images as they are."""
        return self.images.digest()


def augmented(images: Images, name: str, seed: int = 0) -> Images:
    """`images`, changed by one of `AUGMENTATIONS` anew in every epoch."""
    return Augmented(images, name, seed)
