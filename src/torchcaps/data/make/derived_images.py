"""What makers share: images that are made of other images when they are asked for, never stored."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from torchcaps._checks import check_count
from torchcaps.data.batch import Batch, JudgedBy
from torchcaps.data.image_set import ImageSet
from torchcaps.data.items import Items, digest_over, sample_numbers
from torchcaps.errors import TorchcapsError


@dataclass(frozen=True)
class DerivedImages(Items, ABC):
    """Images made of a base: MNIST in the papers, but any will do.

    seed: of everything drawn. What is drawn for an image depends on the seed and its number alone.
    copies: how many images of an epoch come of each image of the base; image n comes of image n
        modulo the size of the base.
    fresh: whether images are drawn anew in every epoch. An evaluation asks for epoch 0, so it sees
        the same images every time.
    """

    base: ImageSet
    seed: int = 0
    copies: int = 1
    fresh: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.base, ImageSet):
            raise TorchcapsError(
                f"{type(self).__name__} is made of images in memory, an ImageSet, but came with a "
                f"{type(self.base).__name__}; fewer of them are images.take(index)."
            )
        check_count("copies", self.copies, of="images")

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, int, int]: ...

    @abstractmethod
    def _make(self, source: Tensor, sample: Tensor) -> Batch:
        """Make images out of images `source` of the base [b], drawn by the sample numbers [b]."""

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.base.class_names

    @property
    def judged_by(self) -> JudgedBy:
        return self.base.judged_by

    def __len__(self) -> int:
        return len(self.base) * self.copies

    def batch(self, index: Tensor | slice, epoch: int = 0) -> Batch:
        sample = sample_numbers(index, len(self), epoch if self.fresh else 0)
        sample = sample.to(self.base.labels.device)
        return self._make(sample % len(self.base), sample)

    def hold_out(self, *, share: float = 0.1, seed: int = 0) -> tuple[Self, Self]:
        """Part the base: (images made of the rest, images made of a share)."""
        rest, held = self.base.hold_out(share=share, seed=seed)
        return replace(self, base=rest), replace(self, base=held)

    def to(self, device: torch.device | str) -> Self:
        return replace(self, base=self.base.to(device))

    def digest(self) -> str:
        """Return twelve characters of the base and of all that the images are made by."""
        return digest_over(self, "base")
