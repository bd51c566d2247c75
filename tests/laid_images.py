"""Images in memory that tests look at: noise, and blocks that tell which image they are."""

from typing import Any

import torch

from torchcaps.data import ImageSet


class Pets:
    """A data set of others: a length and items are all that is asked for."""

    def __init__(self, *items: Any, classes: list[str] | None = None):
        self.items = items
        if classes:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: int) -> Any:
        return self.items[at]


def labelled(name: str, images: torch.Tensor, n_classes: int = 1) -> ImageSet:
    """These images, the classes in turn."""
    labels = torch.arange(len(images)) % n_classes
    return ImageSet(name, images, labels, tuple("abcdefgh"[:n_classes]))


def noise(count: int = 20, channels: int = 1, side: int = 12) -> ImageSet:
    """Random bytes, of three classes."""
    images = torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8)
    return labelled("noise", images, 3)


def blocks(count: int, *, rim: int, side: int, n_classes: int) -> ImageSet:
    """A block of one level each, framed by zeros: `levels` tells from it which image it is."""
    images = torch.zeros(count, 1, side, side, dtype=torch.uint8)
    level = torch.arange(1, count + 1, dtype=torch.uint8)
    images[:, :, rim : side - rim, rim : side - rim] = level[:, None, None, None]
    return labelled("blocks", images, n_classes)


def levels(planes: torch.Tensor) -> torch.Tensor:
    """Which image of `blocks` each plane [b, m, c, h, w] shows, wherever its block was moved."""
    return (planes.flatten(2).amax(2) * 255).round().long() - 1


def chi_square(counts: torch.Tensor, expected: torch.Tensor | float) -> float:
    return float(((counts - expected) ** 2 / expected).sum())
