"""Some images of a set, chosen once: a smaller set to train on."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from torchcaps.data.batch import Batch, Images
from torchcaps.data.image_set import ImageSet, hold_out_of
from torchcaps.data.make.derived_images import DerivedImages
from torchcaps.data.make.multi_mnist import Pairs
from torchcaps.data.part_truth import PartTruth
from torchcaps.data.sample import sample_of
from torchcaps.data.shown.changed_images import OtherImages
from torchcaps.data.shown.crop import Cropped
from torchcaps.errors import TorchcapsError


@dataclass(frozen=True)
class Some(OtherImages):
    """Images `index` of a set, in this order. Made with `some_of`."""

    index: Tensor  # int64 [n]

    def _told(self, what: str) -> Any:
        whole = super()._told(what)
        if isinstance(whole, tuple):
            return tuple(whole[at] for at in self.index.tolist())
        return None if whole is None else whole[self.index.to(whole.device)]

    @property
    def truth(self) -> PartTruth | None:
        """What is known of their parts, where that is known of the set."""
        whole: PartTruth | None = getattr(self.images, "truth", None)
        return None if whole is None else whole[self.index.cpu()]

    def __len__(self) -> int:
        return len(self.index)

    def batch(self, index: Tensor | slice, epoch: int = 0) -> Batch:
        """Make images by their numbers in the whole set, drawn as they would be there."""
        chosen = index if isinstance(index, slice) else index.to(self.index.device)
        return self.images.batch(self.index[chosen], epoch)

    def hold_out(self, *, share: float, seed: int) -> tuple[Self, Self]:
        """Part by number, where images have nothing in common; refuse where they may have."""
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
        """Return twelve characters of the whole set and of the choice."""
        chosen = self.index.cpu().numpy().tobytes()
        return hashlib.sha256(self.images.digest().encode() + chosen).hexdigest()[:12]


def can_be_parted(images: Images) -> bool:
    """Say whether `hold_out` parts these images. It refuses images chosen out of a set that alone
    knows which of its images have something in common."""
    chosen = False
    while isinstance(images, OtherImages):
        chosen = chosen or isinstance(images, Some)
        images = images.images
    apart = isinstance(images, ImageSet) or (
        isinstance(images, DerivedImages) and images.copies == 1 and not isinstance(images, Pairs)
    )
    return apart or not chosen


def some_of(images: Images, count: int, *, seed: int = 0) -> Images:
    """Draw `count` images of a set as a set of their own, as `sample_of` draws them: every class
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
    """Draw windows by a seed where `windows` shows the middle; leave other images as they are."""
    if isinstance(images, Some):
        return replace(images, images=anywhere(images.images, seed))
    return replace(images, seed=seed) if isinstance(images, Cropped) else images
