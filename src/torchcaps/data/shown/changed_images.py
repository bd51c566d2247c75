"""What looks at images that others hold: some of them, or all of them changed."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from torchcaps.data.batch import Batch, Images, JudgedBy
from torchcaps.data.items import Items, digest_over, sample_numbers


def _told_of(what: str) -> Any:
    return property(lambda images: images._told(what))


@dataclass(frozen=True)
class OtherImages(Items, ABC):
    """Images of another set, which knows all that is not told otherwise here."""

    images: Images

    def _told(self, what: str) -> Any:
        """Look up what is told of each image; None where the set does not tell it."""
        return getattr(self.images, what, None)

    @property
    def name(self) -> str:
        return self.images.name

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.images.class_names

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.images.image_shape

    @property
    def judged_by(self) -> JudgedBy:
        return self.images.judged_by

    # The labels of images that lie in memory.
    labels = _told_of("labels")
    # Where each image was read from, of sets that are a file an image.
    files = _told_of("files")
    # The name of each image's group, where the set has groups.
    groups = _told_of("groups")

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class ChangedImages(OtherImages, ABC):
    """Images changed one batch at a time, when they are wanted; nothing is stored."""

    @abstractmethod
    def _change(self, pixels: Tensor, sample: Tensor) -> Tensor:
        """Change pixels [b, c, h, w], those of sample numbers [b]."""

    def batch(self, index: Tensor | slice, epoch: int = 0) -> Batch:
        """Change an image and its parts alike."""
        pixels, labels, parts = self.images.batch(index, epoch)
        sample = sample_numbers(index, len(self), epoch).to(pixels.device)
        if parts is None:
            return Batch(self._change(pixels, sample), labels)
        layers = torch.cat([pixels[:, None], parts], 1)  # [b, 1 + m, c, h, w]
        changed = self._change(layers.flatten(1, 2), sample)
        changed = changed.view(*layers.shape[:3], *changed.shape[-2:])
        return Batch(changed[:, 0], labels, changed[:, 1:])

    def hold_out(self, *, share: float, seed: int) -> tuple[Self, Self]:
        """Part the images, both changed; for validation images as they are, hold out first."""
        rest, held = self.images.hold_out(share=share, seed=seed)
        return replace(self, images=rest), replace(self, images=held)

    def to(self, device: torch.device | str) -> Self:
        return replace(self, images=self.images.to(device))

    def digest(self) -> str:
        """Return twelve characters of the images and of all that they are changed by."""
        return digest_over(self, "images")
