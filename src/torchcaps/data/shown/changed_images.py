"""What changes images that others hold: one batch at a time, an image and its parts alike."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from torchcaps.data.batch import Batch, Images, JudgedBy
from torchcaps.data.items import Items, digest_over, sample_numbers


@dataclass(frozen=True)
class ChangedImages(Items, ABC):
    """Images of another set, changed when they are wanted; nothing is stored."""

    images: Images

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, int, int]: ...

    @abstractmethod
    def _change(self, pixels: Tensor, sample: Tensor) -> Tensor:
        """Pixels [b, c, h, w] changed, those of sample numbers [b]."""

    @property
    def name(self) -> str:
        return self.images.name

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.images.class_names

    @property
    def judged_by(self) -> JudgedBy:
        return self.images.judged_by

    @property
    def labels(self) -> Tensor | None:
        """Those of the images, where they lie in memory."""
        return getattr(self.images, "labels", None)

    @property
    def files(self) -> tuple[str, ...] | None:
        """Where each image was read from, of sets that are a file an image."""
        return getattr(self.images, "files", None)

    @property
    def groups(self) -> tuple[str, ...] | None:
        """The name of each image's group, where the set has groups."""
        return getattr(self.images, "groups", None)

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, index: Tensor | slice, epoch: int = 0) -> Batch:
        """Changed alike: an image and its parts."""
        pixels, labels, parts = self.images.batch(index, epoch)
        sample = sample_numbers(index, len(self), epoch).to(pixels.device)
        if parts is None:
            return Batch(self._change(pixels, sample), labels)
        layers = torch.cat([pixels[:, None], parts], 1)  # [b, 1 + m, c, h, w]
        changed = self._change(layers.flatten(1, 2), sample)
        changed = changed.view(*layers.shape[:3], *changed.shape[-2:])
        return Batch(changed[:, 0], labels, changed[:, 1:])

    def hold_out(self, *, share: float, seed: int) -> tuple[Self, Self]:
        """Both are changed; for validation images as they are, hold out first."""
        rest, held = self.images.hold_out(share=share, seed=seed)
        return replace(self, images=rest), replace(self, images=held)

    def to(self, device: torch.device | str) -> Self:
        return replace(self, images=self.images.to(device))

    def digest(self) -> str:
        """Twelve characters of the images and of all that they are changed by."""
        return digest_over(self, "images")
