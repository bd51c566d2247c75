"""Images that were trained on too: what is right about them proves nothing."""

import hashlib

import torch
from torch import Tensor

from torchcaps.data import Images
from torchcaps.tasks.progress import progress

__all__ = ["MOST_COMPARED", "in_training", "marks"]

MANY = 1000
# Training images that others are compared with; more take hours.
MOST_COMPARED = 1_000_000


def in_training(training: Images, others: Images) -> Tensor:
    """Which of the others are there among the training images, pixel for pixel: bool [n]."""
    known = set(marks(training))
    return torch.tensor([mark in known for mark in marks(others)])


def marks(images: Images) -> list[bytes]:
    """A mark of each image, the same for the same pixels."""
    found = []
    with progress("looking for images that are there twice", len(images)) as advance:
        for index in torch.arange(len(images)).split(MANY):
            pixels = images.batch(index).pixels.cpu().contiguous().numpy()
            found += [hashlib.blake2b(each.tobytes(), digest_size=16).digest() for each in pixels]
            advance(len(index))
    return found
