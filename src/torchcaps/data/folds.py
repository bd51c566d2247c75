"""Folds: every image is tested once, by a network that has not seen it or any of its group."""

import re
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from torchcaps._checks import check_count
from torchcaps.data.image_set import ImageSet
from torchcaps.data.parting import part_by_groups
from torchcaps.errors import TorchcapsError, short


def folds(images: ImageSet, count: int = 5, *, seed: int = 0) -> list[tuple[ImageSet, ImageSet]]:
    """Make (training images, test images) of each fold, for cross-validation. Every image is in the
    test of one fold, and no group is parted; every class has its share of each fold, exactly, or as
    far as whole groups allow.

    Arguments:
        images: images in memory, with groups or without.
        count: how many folds.
        seed: it draws the folds; groups are drawn by it and by their names alone.

    >>> for at, pair in enumerate(folds(images, 5)):  # doctest: +SKIP
    ...     fit(recipe, f"fold-{at}", own=pair)
    """
    names = images.class_names
    found = fold_numbers(images.name, images.groups, images.labels.cpu(), names, count, seed=seed)
    is_test = [torch.from_numpy(found == fold) for fold in range(count)]
    return [
        (images.take((~test).nonzero()[:, 0]), images.take(test.nonzero()[:, 0]))
        for test in is_test
    ]


def fold_numbers(
    name: str,
    groups: Sequence[str] | None,
    labels: ArrayLike,
    class_names: Sequence[str],
    count: int,
    *,
    seed: int = 0,
) -> NDArray[np.intp]:
    """Number the fold that tests each image, [n], counted from 0.

    Arguments:
        name: of the set, for sentences.
        groups: the name of each image's group.
        labels: the class of each image.
        class_names: those of the classes.
        count: how many folds.
        seed: it draws them.
    """
    check_count("count", count, of="folds", least=2)
    labels = np.asarray(labels)
    if groups is None:
        fold_of, kind = _by_class(labels, count, seed), "image"
    else:
        shares, everywhere = (1 / count,) * count, (True,) * count
        fold_of = part_by_groups(groups, labels, shares, all_classes_in=everywhere, seed=seed)
        kind = "group"
    for fold in range(count):
        test = fold_of == fold
        lacking = set(labels.tolist()) - set(labels[~test].tolist())
        if lacking or not test.any():
            whose = f"class {class_names[min(lacking)]!r}" if lacking else name
            raise TorchcapsError(
                f"{name} cannot be parted into {count} folds, because {whose} has too few "
                f"{kind}s; take fewer folds, or add {kind}s."
            )
    return fold_of


def named_fold(fold: object) -> tuple[int, int]:
    """Read which of how many folds "2/5" names.

    >>> named_fold("2/5")
    (2, 5)
    """
    found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", fold) if isinstance(fold, str) else None
    number, count = (0, 0) if found is None else (int(found[1]), int(found[2]))
    if not (1 <= number <= count and count > 1):
        raise TorchcapsError(
            f"fold must name one of two folds or more, as '2/5' does the second of five, but came "
            f"as {short(fold)}."
        )
    return number, count


def _by_class(labels: NDArray[np.int64], count: int, seed: int) -> NDArray[np.intp]:
    """Deal out the images of each class to the folds in turn, in an order drawn by the seed."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator).numpy()
    order = order[labels[order].argsort(kind="stable")]
    fold_of: NDArray[np.intp] = np.empty(len(order), dtype=np.intp)
    fold_of[order] = np.arange(len(order)) % count
    return fold_of
