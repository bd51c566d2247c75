"""What a network is trained on: some images of a set, by their indices and the epoch."""

from typing import Literal, NamedTuple, Protocol, Self

import torch
from torch import Tensor

# When an answer is right. "class": the highest score is that of the class. "top": as many highest
# scores as an image has labels are those of its classes. "set": the classes of probability 1/2 or
# more are those that are there, and nobody says how many these are.
JudgedBy = Literal["class", "top", "set"]


class Batch(NamedTuple):
    """Some images with their labels."""

    pixels: Tensor  # [b, c, h, w] in [0, 1]
    # int64 [b], or [b, m] where m objects share an image; a class named twice is there once.
    labels: Tensor
    # Each labelled object alone, as a decoder should draw it.
    parts: Tensor | None = None  # [b, m, c, h, w]


class Images(Protocol):
    """Labelled images, held in memory or made when they are wanted.

    Image `index` of an epoch is the same whatever the batch, the worker or the device it is made
    in. Images that lie in memory are the same in every epoch.
    """

    @property
    def name(self) -> str: ...

    @property
    def class_names(self) -> tuple[str, ...]: ...

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width), as `create_model(image=)` takes it."""

    @property
    def judged_by(self) -> JudgedBy:
        """When an answer is right: the same for every network."""

    def __len__(self) -> int: ...

    def batch(self, index: Tensor | slice, epoch: int = 0) -> Batch: ...

    def hold_out(self, *, share: float, seed: int) -> tuple[Self, Self]:
        """Part off a random share: (the rest, the share). They have nothing in common."""

    def to(self, device: torch.device | str) -> Self: ...

    def digest(self) -> str:
        """Return twelve characters that change when any image or label does."""
