"""Test images that the training set holds too: what is right about them proves nothing."""

import hashlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from torchcaps.data import Images
from torchcaps.tasks.progress import progress

__all__ = ["MOST_COMPARED", "in_training"]

MANY = 1000
# Training images that test images are compared with; more take hours.
MOST_COMPARED = 1_000_000


def in_training(training: Images, test: Images) -> Tensor:
    """Which test images are there among the training images, pixel for pixel: bool [n]."""
    with progress("comparing test and training images", len(training) + len(test)) as advance:
        known = set(_marks(training, advance))
        return torch.tensor([mark in known for mark in _marks(test, advance)])


def _marks(images: Images, advance: Callable[[int], None]) -> Iterator[bytes]:
    for index in torch.arange(len(images)).split(MANY):
        pixels = images.batch(index).pixels.cpu().contiguous().numpy()
        yield from (hashlib.blake2b(each.tobytes(), digest_size=16).digest() for each in pixels)
        advance(len(index))
