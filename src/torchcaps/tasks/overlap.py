"""Images that were trained on too: what is right about them proves nothing."""

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data import Images
from torchcaps.errors import TorchcapsError
from torchcaps.tasks.progress import progress
from torchcaps.tasks.trained import Trained

MANY = 1000
# Training images that others are compared with; more take hours.
MOST_COMPARED = 1_000_000
# Sets whose training images are more than that, and would have to be read to be counted: affNIST's
# are 1.6 million, a download of their own.
NEVER_COMPARED = ("affnist",)


def marks(images: Images) -> list[bytes]:
    """Make a mark of each image, the same for the same pixels."""
    found = []
    with progress("looking for images that are there twice", len(images)) as advance:
        for index in torch.arange(len(images)).split(MANY):
            pixels = images.batch(index).pixels.cpu().contiguous().numpy()
            found += [hashlib.blake2b(each.tobytes(), digest_size=16).digest() for each in pixels]
            advance(len(index))
    return found


def seen_by(
    trained: Trained, images: Images, split: str, data: str | None, root: Path | None
) -> Tensor | None:
    """Mark which images are training images of the same set too, pixel for pixel, bool [n]: of test
    images whether or not the run has had these. None where that is not looked at."""
    if trained.source(data) in NEVER_COMPARED:
        return None
    try:
        of_set = split == "test"
        training = (trained.images_now if of_set else trained.images)("train", data=data, root=root)
    except (TorchcapsError, OSError):
        # Whoever has the test images alone still has them judged.
        return None
    if len(training) > MOST_COMPARED:
        return None
    known = set(marks(training))
    return torch.tensor([mark in known for mark in marks(images)])
