"""Images brought to another size, the whole image into the whole frame.

A pixel of the result is a mean of those it covers, weighted by a triangle: bilinear where an image
grows, and over as many more pixels as it shrinks, so that nothing is skipped. Pillow's BILINEAR and
torch's `interpolate(mode="bilinear", antialias=True)` do the same; here every sum has one order, so
an image is the same bit for bit in any batch and on every device.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchcaps.data.batch import Images
from torchcaps.data.image_set import MOST_BYTES, ImageSet
from torchcaps.data.part_truth import PartTruth
from torchcaps.data.shown.changed_images import ChangedImages
from torchcaps.errors import TorchcapsError, short

LARGEST = 4096
# Images in memory are resized so many at a time.
AT_ONCE = 1000


@dataclass(frozen=True)
class Resized(ChangedImages):
    """Images that are made when they are wanted, stretched to (height, width)."""

    size: tuple[int, int]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.images.image_shape[0], *self.size

    @property
    def truth(self) -> PartTruth | None:
        """Which parts the images show, stretched as they are; None where nobody knows."""
        return _stretched(getattr(self.images, "truth", None))

    def _change(self, pixels: Tensor, sample: Tensor) -> Tensor:
        return resize(pixels, self.size)


def resized(images: Images, size: tuple[int, int]) -> Images:
    """Stretch `images` to (height, width): those in memory once, where they fit again, others
    whenever they are made.

    Bytes stay bytes. Of made images with known parts, the `truth` still says which parts there are,
    but no longer which pixels are theirs.

    Arguments:
        images: the set.
        size: (height, width).

    >>> resized(tc.data.load("part-whole", split="test"), (24, 24)).image_shape
    (1, 24, 24)
    """
    check_size(size)
    if images.image_shape[1:] == tuple(size):
        return images
    filled = len(images) * images.image_shape[0] * math.prod(size)
    if not isinstance(images, ImageSet) or filled * images.images.element_size() > MOST_BYTES:
        return Resized(images, (size[0], size[1]))
    parts = [_stored(part, (size[0], size[1])) for part in images.images.split(AT_ONCE)]
    return replace(images, images=torch.cat(parts), truth=_stretched(images.truth))


def check_size(size: tuple[int, int]) -> None:
    """Refuse what is not (height, width), two whole numbers."""
    fits = isinstance(size, Sequence) and len(size) == 2
    if not fits or not all(type(side) is int and 1 <= side <= LARGEST for side in size):
        raise TorchcapsError(
            f"size must be (height, width), each from 1 to {LARGEST}, got {short(size)}."
        )


def _stretched(truth: PartTruth | None) -> PartTruth | None:
    """Keep which parts there are, but no longer which pixels are theirs."""
    return None if truth is None else replace(truth, size=None)


def _stored(images: Tensor, size: tuple[int, int]) -> Tensor:
    if images.dtype == torch.uint8:
        return resize(images.float(), size).add_(0.5).floor_().clamp_(0, 255).to(torch.uint8)
    return resize(images, size).clamp_(0, 1)


def resize(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Stretch floats [b, c, h, w] to (height, width).

    >>> resize(torch.tensor([[[[0.0, 1.0]]]]), (1, 4))
    tensor([[[[0.0000, 0.2500, 0.7500, 1.0000]]]])
    """
    for axis, side in zip((-2, -1), size, strict=True):
        if pixels.shape[axis] != side:
            pixels = _along(pixels, axis, side)
    return pixels


def _along(pixels: Tensor, axis: int, side: int) -> Tensor:
    """Bring one axis to another length."""
    before = pixels.shape[axis]
    scale = before / side
    reach = max(scale, 1.0)
    centre = (torch.arange(side, dtype=torch.float64) + 0.5) * scale - 0.5
    first = (centre - reach).ceil().long()
    source = first + torch.arange(math.floor(2 * reach) + 1)[:, None]  # [k, side]
    weight = (1 - (source - centre).abs() / reach).clamp(min=0)
    weight[(source < 0) | (source >= before)] = 0
    weight = (weight / weight.sum(0)).to(pixels)
    source = source.clamp_(0, before - 1).to(pixels.device)
    if axis == -2:
        weight = weight[:, :, None]
    total = pixels.index_select(axis, source[0]) * weight[0]
    for taken, share in zip(source[1:], weight[1:], strict=True):
        # Not addcmul, which rounds once on some machines and twice on others.
        total = total + pixels.index_select(axis, taken) * share
    return total
