"""Training images changed a little, anew in every epoch: shifts, crops, flips, affine maps, light.

shift2       shifted by -2 to 2 whole pixels along each axis, as [sabour2017] §5 does with MNIST
shift2-flip  and mirrored half of the times: Fashion-MNIST in public code of [renzulli2025]
crop4-flip   shifted by -4 to 4, which is a crop of the image framed by 4 zeros, and mirrored half
             of the times: CIFAR in [tsai2020] App. A.2
affine       a small affine map: see `affine`
turn20-flip  turned by up to 20 degrees and mirrored half of the times: Tiny ImageNet in public code
             of [renzulli2025]
light        brighter or darker by up to 0.35, two standard deviations of smallNORB's pixels, then
             0.5 to 1.5 times the contrast: smallNORB in public code of [mazzia2021]
flip-light   mirrored half of the times, brighter or darker by up to 0.25, then 0.2 to 1.8 times
             the contrast: CIFAR in public code of [renzulli2025]
even-light   of the mean and deviation of MNIST's test images: with these as `standardise`, training
             images are standardised one by one, test images as one: public code of [peer2022]

The change of an image depends on the seed and its sample number alone, never on the batch.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor

from torchcaps._checks import check_choice
from torchcaps.data.batch import Images
from torchcaps.data.draws import integers, uniform
from torchcaps.data.shown.changed_images import ChangedImages
from torchcaps.data.warp import linear_maps, place, warp

Augmentation = Callable[[Tensor, int, Tensor], Tensor]

# Streams of their own: makers draw from the lower ones, maybe with the same seed.
_SHIFT, _FLIP, _MAP, _LIGHT = range(100, 104)


def affine(pixels: Tensor, seed: int, sample: Tensor) -> Tensor:
    """Turn, lean, stretch and shift, each by an even draw.

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


def _and_flipped(pixels: Tensor, seed: int, sample: Tensor, *, change: Augmentation) -> Tensor:
    pixels = change(pixels, seed, sample)
    mirrored = integers(seed, sample, _FLIP, 1, 2)[..., None, None].to(pixels.device) == 1
    return torch.where(mirrored, pixels.flip(-1), pixels)


def _turned(pixels: Tensor, seed: int, sample: Tensor, *, most: float) -> Tensor:
    u = uniform(seed, sample, _MAP, 1, pixels.device).to(pixels.dtype)[:, 0]
    upright, same = torch.zeros_like(u), torch.ones_like(u)
    linear = linear_maps((u * 2 - 1) * math.radians(most), upright, same, same)
    return warp(pixels, torch.cat([linear, linear.new_zeros(len(u), 2, 1)], -1))


def _lit(
    pixels: Tensor, seed: int, sample: Tensor, *, brightness: float, contrast: float
) -> Tensor:
    """Brighten by an even draw from ±brightness, then multiply differences from the mean of each
    channel by an even draw from 1 ± contrast. Nothing is cut, so pixels may leave [0, 1]: cameras
    would cut them, the code that this follows does not."""
    u = uniform(seed, sample, _LIGHT, 2, pixels.device).to(pixels.dtype) * 2 - 1
    brighter, factor = u[:, 0] * brightness, u[:, 1] * contrast + 1
    mean = _means(pixels)
    difference = (pixels - mean) * factor[:, None, None, None]
    return difference + (mean + brighter[:, None, None, None])


def _evenly_lit(pixels: Tensor, seed: int, sample: Tensor) -> Tensor:
    # Sums of whole numbers, as in _means; no deviation counts as less than that of one pixel.
    steps, one = (pixels.double() * (255 * 256)).round(), (255 * 256) ** 2 / pixels[0].numel()
    mean, square = (each.mean((1, 2, 3), keepdim=True) for each in (steps, steps.square()))
    deviation = (square - mean.square()).clamp(min=one).sqrt()
    return ((steps - mean) / deviation * 0.3105 + 0.1325).to(pixels.dtype)


def _means(pixels: Tensor) -> Tensor:
    """Return the mean of each channel, [b, c, 1, 1], of pixels rounded to a 256th of a byte: sums
    of whole numbers are the same bit for bit in any order, batch and device."""
    steps = (pixels.double() * (255 * 256)).round().sum((2, 3), keepdim=True)
    return (steps / (255 * 256 * pixels[0, 0].numel())).to(pixels.dtype)


_FLIPPED: Mapping[str, Augmentation] = {
    "crop4-flip": partial(_shifted, most=4),
    "flip-light": partial(_lit, brightness=0.25, contrast=0.8),
    "shift2-flip": partial(_shifted, most=2),
    "turn20-flip": partial(_turned, most=20),
}
AUGMENTATIONS: Mapping[str, Augmentation] = MappingProxyType(
    {
        "affine": affine,
        "even-light": _evenly_lit,
        "light": partial(_lit, brightness=0.35, contrast=0.5),
        "shift2": partial(_shifted, most=2),
        **{name: partial(_and_flipped, change=change) for name, change in _FLIPPED.items()},
    }
)


@dataclass(frozen=True)
class Augmented(ChangedImages):
    """Images changed in every epoch anew; `augmented` makes one."""

    augmentation: str
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("augmentation", self.augmentation, AUGMENTATIONS)

    def _change(self, pixels: Tensor, sample: Tensor) -> Tensor:
        return AUGMENTATIONS[self.augmentation](pixels, self.seed, sample)


def augmented(images: Images, name: str, seed: int = 0) -> Images:
    """Change `images` by one of `AUGMENTATIONS`, anew in every epoch.

    Arguments:
        images: the set.
        name: a name of `AUGMENTATIONS`.
        seed: which changes are drawn.

    >>> augmented(load("part-whole"), "shift2")  # doctest: +SKIP
    """
    return Augmented(images, name, seed)
