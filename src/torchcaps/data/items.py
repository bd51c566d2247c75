"""Images one by one, so that a DataLoader takes them: what every set of labelled images shares."""

import hashlib
import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from torchcaps._checks import check_count
from torchcaps.data.batch import Batch
from torchcaps.errors import TorchcapsError, short

# An image [c, h, w] and the number of its class, or [m] where m objects share it.
Item = tuple[Tensor, int | Tensor]


class Items(Dataset[Item], ABC):
    """A map-style data set: `images[5]` is (image, label), and a DataLoader shuffles and collates.

    Images that are made when they are wanted are those of epoch 0 until `set_epoch`.

    >>> loader = DataLoader(data.load("mnist", root="data"), batch_size=128, shuffle=True)
    """

    # Of all items given from now on. No field of the data: two sets are equal whatever it is.
    _epoch = 0

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, index: Tensor | slice, epoch: int = 0) -> Batch: ...

    def set_epoch(self, epoch: int) -> None:
        """Give the images of another epoch, before its DataLoader is iterated. Workers that persist
        from epoch to epoch do not hear of it."""
        check_count("epoch", epoch, least=0)
        object.__setattr__(self, "_epoch", epoch)

    def __getitem__(self, index: int) -> Item:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Item]:
        """Make several at once: a DataLoader asks for a batch this way."""
        pixels, labels, _ = self.batch(torch.tensor([self._at(i) for i in indices]), self._epoch)
        several = labels.ndim > 1
        return list(zip(pixels, labels if several else labels.tolist(), strict=True))

    def _at(self, index: int) -> int:
        try:
            at = operator.index(index)
        except TypeError:
            raise TorchcapsError(
                f"an image is asked for by a whole number, but came {short(index)}; for several at "
                f"once, images.batch(index)."
            ) from None
        if not -len(self) <= at < len(self):
            # What ends a loop over the images.
            raise IndexError(f"there are {len(self)} images, and none has the number {at}.")
        return at % len(self)


def digest_over(made: Any, source: str) -> str:
    """Return twelve characters of the images in the field `source`, and of all other fields."""
    knobs = {each.name: getattr(made, each.name) for each in fields(made) if each.name != source}
    seen = f"{type(made).__name__} {getattr(made, source).digest()} {knobs}"
    return hashlib.sha256(seen.encode()).hexdigest()[:12]


def sample_numbers(index: Tensor | slice, count: int, epoch: int) -> Tensor:
    """Number these images among all that `count` an epoch ever give, int64 [b]."""
    if isinstance(index, slice):
        chosen = torch.arange(*index.indices(count))
    elif index.dtype == torch.bool:
        chosen = index.nonzero()[:, 0]
    else:
        # As a tensor counts them, -1 is the last one.
        chosen = torch.where(index < 0, index + count, index)
    return chosen + epoch * count
