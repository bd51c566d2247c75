"""Batches in an order that depends on the seed and the epoch alone, so a run can be continued."""

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from torchcaps.data import Batch, Images
from torchcaps.train.seeds import ORDER, seed_of

# On a GPU batches are made together, as many as fill so many bytes of pixels.
AT_ONCE = 1 << 28


# Of a batch: which share of it is a rank's, its epoch, and the numbers of the rank's images.
Part = tuple[float, int, Tensor]


class _Order:
    """(epoch, indices) of whole batches, on a device."""

    # Of the images, where an epoch shows every class equally often.
    labels: Tensor | None = None

    def __init__(self, count: int, size: int, seed: int | None, device: torch.device | None):
        self.count, self.size, self.seed, self.device = count, size, seed, device
        self.epoch = 0
        # How many batches of the next epoch were taken before.
        self.skip = 0

    def set_epoch(self, epoch: int) -> None:
        # What is not shuffled is looked at, not trained on: the same images every time.
        self.epoch = 0 if self.seed is None else epoch

    def __len__(self) -> int:
        return -(-self.count // self.size)

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        order = torch.arange(self.count)
        if self.seed is not None:
            generator = torch.Generator().manual_seed(seed_of(self.seed, ORDER, self.epoch))
            if self.labels is None:
                order = torch.randperm(self.count, generator=generator)
            else:
                order = _evenly(self.labels, generator)
        skip, self.skip = self.skip, 0
        for index in order.to(self.device).split(self.size)[skip:]:
            yield self.epoch, index


def _evenly(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Draw images of every class equally often; all of a class come before one comes again."""
    order: list[Tensor] = []
    classes = labels.unique()
    for k, each in enumerate(classes):
        images = (labels == each).nonzero()[:, 0]
        many = (len(labels) + k) // len(classes)
        while many > 0:
            order.append(images[torch.randperm(len(images), generator=generator)][:many])
            many -= len(images)
    return torch.cat(order)[torch.randperm(len(labels), generator=generator)]


class Batches:
    """The images in batches; the last may be smaller.

    Without a seed they are those of epoch 0, in the order of the images; with one, those of the
    epoch that `sampler.set_epoch` named, in an order that (seed, epoch) alone decides. Balanced
    sampling shows every class equally often. With workers they are made in so many processes beside
    this one, else here, where the images lie.

    On several devices rank r takes the r-th slice of every batch. Where a batch has fewer images
    than there are ranks, a rank without one takes the first as a stand-in, and `share` is 0.
    """

    def __init__(
        self,
        images: Images,
        size: int,
        *,
        seed: int | None = None,
        workers: int = 0,
        rank: int = 0,
        ranks: int = 1,
        device: torch.device | None = None,
        sampling: str = "shuffled",
    ):
        self.images, self.size, self.workers = images, size, workers
        self.rank, self.ranks = rank, ranks
        self.sampler = _Order(len(images), size, seed, device)
        if sampling == "balanced":
            self.sampler.labels = images.labels.cpu()  # type: ignore[attr-defined]
        # Batches of this epoch given out so far, and which part of the last one is this rank's.
        self.given = 0
        self.share = 1.0

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        self.given = self.sampler.skip
        parts = map(self._part, self.sampler)
        made: Iterable[tuple[float, Batch]] = map(_Made(self.images).__getitem__, parts)
        if self.workers:
            made = DataLoader(
                _Made(self.images),
                sampler=parts,
                batch_size=None,
                num_workers=self.workers,
                pin_memory=torch.cuda.is_available(),
                # Its own, or it would draw from the global one and break resuming.
                generator=torch.Generator().manual_seed(0),
            )
        elif self.sampler.device is not None:
            made = self._together(parts)
        for share, batch in made:
            self.given, self.share = self.given + 1, share
            yield batch

    def _part(self, at: tuple[int, Tensor]) -> Part:
        """Take this rank's part of a batch, or a stand-in."""
        epoch, index = at
        own = index.tensor_split(self.ranks)[self.rank]
        return len(own) / len(index), epoch, own if len(own) else index[:1]

    def _together(self, left: Iterator[Part]) -> Iterator[tuple[float, Batch]]:
        """Make several batches at once: what is drawn depends on an image's number and epoch."""
        at_once = max(1, AT_ONCE // (4 * self.size * math.prod(self.images.image_shape)))
        while some := list(islice(left, at_once)):
            shares, epochs, own = zip(*some, strict=True)
            pixels, labels, parts = self.images.batch(torch.cat(own), epochs[0])
            sizes = [len(each) for each in own]
            yield from zip(
                shares,
                map(
                    Batch,
                    pixels.split(sizes),
                    labels.split(sizes),
                    [None] * len(own) if parts is None else parts.split(sizes),
                ),
                strict=True,
            )

    def own(self) -> Tensor:
        """Give the numbers of this rank's images, in the order in which they come."""
        return torch.cat([each.tensor_split(self.ranks)[self.rank] for _, each in self.sampler])

    def seen(self) -> int:
        """Count the images of this epoch in the batches given out so far, on all ranks."""
        return min(self.given * self.size, len(self.images))

    def state_dict(self) -> dict[str, Any]:
        """Say where it is, for who goes on within an epoch."""
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = self.sampler.skip = state["given"]


def brought(batch: Batch, device: torch.device) -> Batch:
    there = (each if each is None else each.to(device, non_blocking=True) for each in batch)
    return Batch(*there)  # type: ignore[arg-type]


def held_on(images: Images, device: torch.device) -> Images:
    """Give the images on a GPU, if at least half of its memory stays free; else where they are."""
    if device.type != "cuda":
        return images
    try:
        there = images.to(device)
    except torch.cuda.OutOfMemoryError:
        return images
    free, total = torch.cuda.mem_get_info(device)
    if free >= total / 2:
        return there
    del there
    torch.cuda.empty_cache()
    return images


class _Made(Dataset[tuple[float, Batch]]):
    """The images of a part of a batch, with its share."""

    def __init__(self, images: Images):
        self.images = images

    def __getitem__(self, part: Part) -> tuple[float, Batch]:
        share, epoch, own = part
        return share, self.images.batch(own, epoch)
