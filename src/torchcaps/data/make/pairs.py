"""What the makers of overlaid digits share: a partner of another class, two digits on one frame."""

from abc import ABC
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

from torchcaps.data.draws import integers
from torchcaps.data.make.derived_images import DerivedImages
from torchcaps.data.warp import place
from torchcaps.errors import TorchcapsError, nearest, short

Overlay = Literal["clip", "max"]

# Each purpose draws from its own stream.
PARTNER, CORNERS, FIRST, ALONE = range(4)


@dataclass(frozen=True, kw_only=True)
class Pairs(DerivedImages, ABC):
    """Two images of a base, each shifted by whole pixels, on one larger frame.

    shift: each is shifted by up to so many pixels along each axis, all shifts alike; the frame is
        as much larger on every side.
    overlay: "clip" adds them and cuts at 1, "max" takes the brighter pixel.
    """

    shift: int = 4
    overlay: Overlay = "clip"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shift < 0:
            raise TorchcapsError(f"shift must be 0 pixels or more, but came as {self.shift}.")
        if self.overlay not in get_args(Overlay):
            raise TorchcapsError(
                f"overlay={short(self.overlay)} is unknown; "
                f"{nearest(self.overlay, get_args(Overlay))}."
            )
        if bool((self.base.labels == self.base.labels[0]).all()):
            raise TorchcapsError(
                f"{self.base.name} has images of one class only, so no image finds a partner of "
                f"another; take more of its images."
            )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.base.image_shape
        return channels, height + 2 * self.shift, width + 2 * self.shift

    @cached_property
    def _by_class(self) -> tuple[Tensor, Tensor, Tensor]:
        """The base's images class by class, where each class starts, and how many it has."""
        order = self.base.labels.argsort(stable=True)
        count = torch.bincount(self.base.labels, minlength=len(self.class_names))
        return order, count.cumsum(0) - count, count

    def _partner(self, first: Tensor, sample: Tensor) -> Tensor:
        """An image of another class than `first` for each, all of them alike, [b]."""
        order, start, count = self._by_class
        label = self.base.labels[first]
        others = (len(order) - count[label])[:, None]
        rank = integers(self.seed, sample, PARTNER, 1, others)[:, 0]
        # Its own class is skipped.
        return order[torch.where(rank >= start[label], rank + count[label], rank)]

    def _alone(self, digits: Tensor, sample: Tensor) -> Tensor:
        """Images `digits` [b, m] of the base, each shifted on a frame of its own, [b, m, ...]."""
        count = digits.shape[1]
        corner = integers(self.seed, sample, CORNERS, 2 * count, 2 * self.shift + 1)
        pixels = self.base.pixels(digits.flatten())
        placed = place(pixels, corner.view(-1, 2), self.image_shape[1:])
        return placed.view(*digits.shape, *self.image_shape)

    def _overlaid(self, parts: Tensor) -> Tensor:
        """The parts [b, m, c, h, w] on one frame."""
        return parts.sum(1).clamp_(max=1) if self.overlay == "clip" else parts.amax(1)
