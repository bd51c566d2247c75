"""A window of each image: from the centre, or anywhere inside where images are trained on."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.data.batch import Images
from torchcaps.data.draws import integers
from torchcaps.data.shown.changed_images import ChangedImages
from torchcaps.data.shown.resize import resized
from torchcaps.data.warp import place
from torchcaps.errors import TorchcapsError, short

# A stream of its own, as those of augmentations.
_CORNER = 110


@dataclass(frozen=True)
class Cropped(ChangedImages):
    """Windows of (height, width) out of larger images.

    seed: None takes the centre. With a seed a window lies anywhere inside its image, all places
        alike, anew in every epoch; it depends on the seed and on the image's sample number alone.

    >>> Cropped(load("part-whole", split="test"), (28, 28)).image_shape
    (1, 28, 28)
    """

    size: tuple[int, int]
    seed: int | None = None

    def __post_init__(self) -> None:
        _, height, width = self.images.image_shape
        is_pair = isinstance(self.size, Sequence) and len(self.size) == 2
        limits = zip(self.size, (height, width), strict=True) if is_pair else ()
        fits = [type(side) is int and 1 <= side <= most for side, most in limits]
        if not is_pair or not all(fits):
            raise TorchcapsError(
                f"crop={short(self.size)} must be (height, width) of a window inside the images of "
                f"{self.name}, which are {height} × {width}; take a smaller one, or a larger "
                f"image_size."
            )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.images.image_shape[0], *self.size

    def _change(self, pixels: Tensor, sample: Tensor) -> Tensor:
        height, width = self.size
        if self.seed is None:
            return middle(pixels, self.size)
        free = torch.tensor([pixels.shape[3] - width, pixels.shape[2] - height])
        corner = integers(self.seed, sample, _CORNER, 2, free.to(sample.device) + 1)
        return place(pixels, -corner, self.size)


def windows(
    images: Images, *, size: tuple[int, int] | None, crop: tuple[int, int] | None
) -> Images:
    """Stretch images to `size`, and take of each the middle window `crop`; None does neither."""
    if size is not None:
        images = resized(images, size)
    return images if crop is None else Cropped(images, crop)


def middle(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Take the window of (height, width) in the centre of images [..., h, w]; where it cannot lie
    exactly there, half a pixel up or to the left."""
    height, width = size
    top, left = (pixels.shape[-2] - height) // 2, (pixels.shape[-1] - width) // 2
    return pixels[..., top : top + height, left : left + width]
