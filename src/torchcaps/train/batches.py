"""Batches in an order that depends on the seed and the epoch alone, so a run can be continued."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from torchcaps.data import Batch, Images
from torchcaps.train.seeds import ORDER, seed_of

__all__ = ["loader"]


class _Shuffled(Sampler[Tensor]):
    """Indices of whole batches. Lightning calls `set_epoch`."""

    def __init__(self, count: int, batch_size: int, seed: int, shuffle: bool):
        self.count, self.batch_size, self.seed, self.shuffle = count, batch_size, seed, shuffle
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-self.count // self.batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        # A generator looks at the epoch when the first batch is wanted: on resuming, Lightning
        # makes the iterator before it says which epoch it is.
        order = torch.arange(self.count)
        if self.shuffle:
            generator = torch.Generator().manual_seed(seed_of(self.seed, ORDER, self.epoch))
            order = torch.randperm(self.count, generator=generator)
        yield from order.split(self.batch_size)


class _Batches(Dataset[Batch]):
    def __init__(self, images: Images):
        self.images = images

    def __getitem__(self, index: Tensor) -> Batch:
        return self.images.batch(index)


def loader(
    images: Images, batch_size: int, *, seed: int = 0, shuffle: bool = False
) -> DataLoader[Batch]:
    """The images in batches; the last may be smaller."""
    sampler = _Shuffled(len(images), batch_size, seed, shuffle)
    # Its own generator, or making an iterator would draw from the global one and break resuming.
    generator = torch.Generator().manual_seed(0)
    return DataLoader(_Batches(images), sampler=sampler, batch_size=None, generator=generator)
