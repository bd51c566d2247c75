"""Shares of images: the interval of one, and the line that an accuracy has to beat."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Z = 1.959964


def wilson(right: int, n: int) -> tuple[float, float]:
    """Give the 95 % Wilson interval of a share, `right` of `n`."""
    share = right / n
    centre = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    spread = math.sqrt(share * (1 - share) / n + (Z / (2 * n)) ** 2)
    half = Z / (1 + Z * Z / n) * spread
    return max(centre - half, 0.0), min(centre + half, 1.0)


class Commonest(NamedTuple):
    """The one answer that is right most often when every image gets it, and how often it is."""

    name: str
    share: float

    def numbers(self) -> dict[str, str | float]:
        """Give the fields as JSON holds them."""
        return {"class": self.name, "share": self.share}


def commonest(labels: Tensor, class_names: Sequence[str]) -> Commonest:
    """Give the commonest class of some images, or, where objects share an image, the commonest set
    of classes, of labels [n, m] in which a class that is named twice is there once. Of equally
    common ones that of the lowest numbers.

    >>> commonest(torch.tensor([0, 1, 1, 1]), ("a", "b"))
    Commonest(name='b', share=0.75)
    """
    labels = labels.cpu()
    if labels.ndim == 1:
        counts = labels.bincount()
        most = int(counts.argmax())
        return Commonest(class_names[most], int(counts[most]) / len(labels))
    absent = torch.ones(len(labels), len(class_names), dtype=torch.bool).scatter(1, labels, False)
    # They come in order, so that the first of equally common ones is that of the lowest numbers.
    sets, counts = absent.unique(dim=0, return_counts=True)
    most = int(counts.argmax())
    return Commonest(_together(~sets[most], class_names), int(counts[most]) / len(labels))


def constant_answer(named: Tensor, images: int, class_names: Sequence[str]) -> str | None:
    """Say what a network says of every image, which names each class, [k], of so many images that
    it was shown; None where its answers differ, or of a single image.

    >>> constant_answer(torch.tensor([0, 9]), 9, ("a", "b"))
    'b'
    """
    of_all = named.cpu() == images
    if images < 2 or not bool((of_all | (named.cpu() == 0)).all()):
        return None
    return _together(of_all, class_names)


def says_always(name: str) -> str:
    """Write the sentence about a network with a constant answer."""
    return f"constant: it says {name!r} of every image"


def _together(chosen: Tensor, class_names: Sequence[str]) -> str:
    """Join the names of the classes chosen, bool [k]."""
    names = [class_names[k] for k in chosen.nonzero().flatten().tolist()]
    return " and ".join(names) or "no class"
