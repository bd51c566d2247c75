"""A few images that stand for all: a seeded sample with the shares that the classes have.

Folders and files are often sorted by class, so the first images of a set show one class alone.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from torchcaps._checks import check_count
from torchcaps.data.batch import Images

# Longer lists of classes are shortened to the range of their counts.
LISTED = 20


def sample_of(images: Images, count: int, *, seed: int = 0) -> Tensor:
    """Draw the indices of `count` images, in random order; of all images where there are fewer.

    Every class has its share of the sample: its exact share rounded down, and the images left over
    go to the classes with the largest remainders. Sets that do not hold one label an image, as
    images of two objects, are sampled evenly, without regard to class.

    Arguments:
        images: the labelled images.
        count: how many to draw, at least 1.
        seed: the same seed draws the same images in the same order, whatever was drawn before.

    >>> few = tc.data.sample_of(test, 200)
    >>> batch = test.batch(few)
    """
    check_count("count", count, of="images")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    labels = getattr(images, "labels", None)
    if count >= len(images) or not isinstance(labels, Tensor) or labels.ndim != 1:
        return order[:count]
    labels = labels.cpu()[order]
    by_class = labels.argsort(stable=True)
    there = torch.bincount(labels)
    rank = torch.empty_like(order)
    rank[by_class] = torch.arange(len(order)) - (there.cumsum(0) - there)[labels[by_class]]
    return order[rank < _shares(there, count)[labels]]


def _shares(there: Tensor, count: int) -> Tensor:
    """Part `count` in proportion to `there` [classes], exactly, by largest remainder."""
    total = int(there.sum())
    whole, remainder = there * count // total, there * count % total
    left = count - int(whole.sum())
    # Of equal remainders the class of the lower number comes first.
    whole[remainder.argsort(descending=True, stable=True)[:left]] += 1
    return whole


def classes_shown(labels: Tensor, class_names: tuple[str, ...]) -> dict[str, int]:
    """Count how many images show each class, of labels [b] or, with m objects an image, [b, m]."""
    shown = present_classes(labels, len(class_names)).sum(0)
    return dict(zip(class_names, shown.tolist(), strict=True))


def present_classes(labels: Tensor, n_classes: int) -> Tensor:
    """Give the classes that each image shows, bool [b, n_classes], of labels [b] or [b, m]."""
    there = torch.zeros(len(labels), n_classes, dtype=torch.bool, device=labels.device)
    return there.scatter(-1, labels.reshape(len(labels), -1), True)


def counts_in_words(counts: Mapping[str, int]) -> str:
    """Say how many images each class has, as short as the counts allow."""
    low, high = min(counts.values()), max(counts.values())
    if low == high:
        return f"{low:,} of each class"
    if len(counts) > LISTED:
        return f"{low:,} to {high:,} of each class"
    return ", ".join(f"{name}: {count:,}" for name, count in counts.items())
