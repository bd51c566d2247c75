"""Some images of a set, chosen once: a smaller set to train on."""

import hashlib
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from torchcaps.data.batch import Batch, Images, JudgedBy
from torchcaps.data.image_set import ImageSet, hold_out_of
from torchcaps.data.items import Items
from torchcaps.data.make.derived_images import DerivedImages
from torchcaps.data.make.pairs import Pairs
from torchcaps.data.part_truth import PartTruth
from torchcaps.data.sample import sample_of
from torchcaps.data.shown.changed_images import ChangedImages
from torchcaps.data.shown.crop import Cropped
from torchcaps.errors import TorchcapsError


@dataclass(frozen=True)
class Some(Items):
    """Images `index` of a set, in this order. Made with `some_of`."""

    images: Images
    index: Tensor  # int64 [n]

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

    @property
    def truth(self) -> PartTruth | None:
        """What is known of their parts, where that is known of the set."""
        whole: PartTruth | None = getattr(self.images, "truth", None)
        return None if whole is None else whole[self.index.cpu()]

    @property
    def labels(self) -> Tensor | None:
        """Those of the images, where they lie in memory."""
        labels: Tensor | None = getattr(self.images, "labels", None)
        return None if labels is None else labels[self.index]

    @property
    def files(self) -> tuple[str, ...] | None:
        """Where each image was read from, of sets that are a file an image."""
        files: tuple[str, ...] | None = getattr(self.images, "files", None)
        return None if files is None else tuple(files[at] for at in self.index.tolist())

    @property
    def groups(self) -> tuple[str, ...] | None:
        """The name of each image's group, where the set has groups."""
        groups: tuple[str, ...] | None = getattr(self.images, "groups", None)
        return None if groups is None else tuple(groups[at] for at in self.index.tolist())

    def __len__(self) -> int:
        return len(self.index)

    def batch(self, index: Tensor | slice, epoch: int = 0) -> Batch:
        """They keep the numbers that they have in the whole set, so an image that is drawn anew in
        every epoch is drawn as it would be there."""
        chosen = index if isinstance(index, slice) else index.to(self.index.device)
        return self.images.batch(self.index[chosen], epoch)

    def hold_out(self, *, share: float, seed: int) -> tuple[Self, Self]:
        """Parted by number, so of images that have nothing in common; or refused."""
        if not can_be_parted(self):
            raise TorchcapsError(
                f"images of {self.name} are made of the same or belong together, and some of them "
                f"cannot be held out from others without a trace in both; hold out first and take "
                f"some of the rest, as a recipe does with train_images."
            )
        rest, held = hold_out_of(self, share=share, seed=seed)
        return replace(self, index=self.index[rest]), replace(self, index=self.index[held])

    def to(self, device: torch.device | str) -> Self:
        return replace(self, images=self.images.to(device), index=self.index.to(device))

    def digest(self) -> str:
        """Twelve characters of the whole set and of the choice."""
        chosen = self.index.cpu().numpy().tobytes()
        return hashlib.sha256(self.images.digest().encode() + chosen).hexdigest()[:12]


def can_be_parted(images: Images) -> bool:
    """Whether `hold_out` parts these images, or refuses because they were chosen out of a set that
    alone knows which of its images have something in common."""
    chosen = False
    while isinstance(images, Some | ChangedImages):
        chosen = chosen or isinstance(images, Some)
        images = images.images
    apart = isinstance(images, ImageSet) or (
        isinstance(images, DerivedImages) and images.copies == 1 and not isinstance(images, Pairs)
    )
    return apart or not chosen


def some_of(images: Images, count: int, *, seed: int = 0) -> Images:
    """`count` images of a set as a set of their own, drawn as `sample_of` draws them: every class
    keeps its share.

    Arguments:
        images: the set.
        count: how many to take.
        seed: which are drawn.

    >>> len(tc.data.some_of(train, 20_000))
    20000
    """
    if count > len(images):
        raise TorchcapsError(
            f"{count:,} of the {len(images):,} images of {images.name} were asked for; ask for "
            f"{len(images):,} or fewer."
        )
    return Some(images, sample_of(images, count, seed=seed).sort().values)


def anywhere(images: Images, seed: int) -> Images:
    """Windows drawn by a seed, of images of which `windows` shows the middle, or some of them; any
    others as they are."""
    if isinstance(images, Some):
        return replace(images, images=anywhere(images.images, seed))
    return replace(images, seed=seed) if isinstance(images, Cropped) else images
