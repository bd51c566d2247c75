"""Digits under random affine maps on 40 × 40 pixels, after affNIST of Tieleman.

Each digit is stretched along each axis on its own, leant, turned and shifted:
p ↦ R(rotation) · [[1, shear], [0, 1]] · diag(scale_x, scale_y) · p + shift, p from the centre.

official  rotation ±20°, shear ±0.2 where 1 is 45°, scale 0.8 to 1.2, any place inside the frame
gu        as [gu2021] §3.1 tells of it: shear ±1, shift ±8 pixels, the rest the same

The published set is `affnist` (https://www.cs.toronto.edu/~tijmen/affNIST/). This one is made of
any images, and is not that set: numbers of one are no numbers of the other.

Departures:
1. One image a digit and epoch where affNIST has 32; copies=32 gives as many.
Ambiguities:
1. The official limits are what is known of the set; nobody measured them on its files for this.
2. In which order the maps follow each other, and which lines a shear leans: as above, upright ones.
3. "Within 45 degrees" of [gu2021] is read as shear up to 1, drawn evenly in the shear.
4. What becomes of digits that reach over the frame: shifts are drawn from those that keep all ink
   inside, and an image with no such place is put in the middle and cut. Ink of 20 × 20 pixels, as
   in MNIST, always finds its place under `official`; under `gu` one digit in 160 does not.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torchcaps._checks import check_choice, check_count
from torchcaps.data.batch import Batch
from torchcaps.data.draws import uniform
from torchcaps.data.make.derived_images import DerivedImages
from torchcaps.data.read.idx import OF_MNIST, mnist
from torchcaps.data.registry import Root, Split, file_set
from torchcaps.data.warp import linear_maps, warp
from torchcaps.errors import TorchcapsError, short


class AffineRanges(NamedTuple):
    """From where maps are drawn, all evenly."""

    rotation: float  # degrees either way
    shear: float  # either way; 1 leans by 45 degrees
    scale: tuple[float, float]  # smallest and largest, of each axis on its own
    shift: float | None  # pixels either way; None is anywhere inside the frame


RANGES: Mapping[str, AffineRanges] = MappingProxyType(
    {
        "official": AffineRanges(20, 0.2, (0.8, 1.2), None),
        "gu": AffineRanges(20, 1.0, (0.8, 1.2), 8),
    }
)


@dataclass(frozen=True, kw_only=True)
class AffnistStyle(DerivedImages):
    """Images under random affine maps, their ink inside the frame.

    ranges: a name in `RANGES`, or limits of your own.
    side: height and width of the frame.
    """

    ranges: Literal["official", "gu"] | AffineRanges = "official"
    side: int = 40

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.ranges, str):
            check_choice("ranges", self.ranges, RANGES)
        else:
            _check_ranges(self.ranges)
        check_count("side", self.side, of="pixels")

    @property
    def name(self) -> str:
        return f"affnist-style-{self.base.name}"

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.base.image_shape[0], self.side, self.side

    def _make(self, source: Tensor, sample: Tensor) -> Batch:
        ranges = RANGES[self.ranges] if isinstance(self.ranges, str) else self.ranges
        u = uniform(self.seed, sample, 0, 6)
        either_way = u * 2 - 1
        low, high = ranges.scale
        scale_x, scale_y = (u[:, 2:4] * (high - low) + low).unbind(-1)
        turn = either_way[:, 0] * math.radians(ranges.rotation)
        linear = linear_maps(turn, either_way[:, 1] * ranges.shear, scale_x, scale_y)

        pixels = self.base.pixels(source)
        least, most = _places(pixels, linear, self.side)
        if ranges.shift is not None:
            least, most = (limit.clamp(-ranges.shift, ranges.shift) for limit in (least, most))
        shift = least + u[:, 4:] * (most - least)
        moved = warp(pixels, torch.cat([linear, shift[..., None]], -1), (self.side, self.side))
        return Batch(moved, self.base.labels[source])


def _check_ranges(ranges: AffineRanges) -> None:
    """Refuse limits by which images would be drawn that hold no number."""
    if not isinstance(ranges, AffineRanges):
        raise TorchcapsError(
            f"ranges must be {', '.join(RANGES)} or an AffineRanges, but came as {short(ranges)}."
        )
    rotation, shear, (low, high), shift = ranges
    # Written so that nan is refused too.
    is_size = 0 < low < math.inf and 0 < high < math.inf
    is_move = shift is None or 0 <= shift < math.inf
    if not (is_size and is_move and math.isfinite(rotation) and math.isfinite(shear)):
        raise TorchcapsError(
            f"ranges must be finite, with scales above 0 and a shift from 0, but came as {ranges}."
        )


def _places(pixels: Tensor, linear: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Find the least and the most shift (x, y) that keep all ink in the frame, each [b, 2]."""
    height, width = pixels.shape[2:]
    x = torch.arange(width, device=pixels.device) - (width - 1) / 2
    y = torch.arange(height, device=pixels.device) - (height - 1) / 2
    across, down = linear[..., None, None].unbind(2)
    where = across * x + down * y[:, None]
    bare = (pixels == 0).all(1, keepdim=True)
    # A pixel fades out one pixel around it.
    reach = linear[..., 0].abs() + linear[..., 1].abs()
    first = where.masked_fill(bare, math.inf).amin((2, 3)) - reach
    last = where.masked_fill(bare, -math.inf).amax((2, 3)) + reach
    edge = (side + 1) / 2
    least, most = -edge - first, edge - last
    middle = (least + most) / 2
    least = torch.where(least > most, middle, least)
    most = torch.maximum(least, most)
    blank = bare.flatten(1).all(1)[:, None]
    return least.masked_fill(blank, 0), most.masked_fill(blank, 0)


@file_set("affnist-style", OF_MNIST, ((1, 40, 40), 10, 60_000))
def _official(root: Root, split: Split) -> AffnistStyle:
    return AffnistStyle(mnist(root, split))


@file_set("affnist-style-gu", OF_MNIST)
def _gu(root: Root, split: Split) -> AffnistStyle:
    return AffnistStyle(mnist(root, split), ranges="gu")
