"""Folds: every image is tested once, by a network that has not seen it or any of its group."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from torchcaps._checks import check_count, is_whole
from torchcaps.data.image_set import ImageSet
from torchcaps.data.parting import part_by_groups
from torchcaps.errors import TorchcapsError, short


def folds(images: ImageSet, count: int = 5, *, seed: int = 0) -> list[tuple[ImageSet, ImageSet]]:
    """Make (training images, test images) of each fold, for cross-validation. Every image is in the
    test of one fold, and no group is parted; every class is in every test, with its share, exactly,
    or as far as whole groups allow.

    Arguments:
        images: images in memory, with groups or without.
        count: how many folds.
        seed: it draws the folds; groups are drawn by it and by their names alone.

    >>> for at, pair in enumerate(folds(images, 5)):  # doctest: +SKIP
    ...     fit(recipe, f"fold-{at}", own=pair)
    """
    groups, labels, names = images.groups, images.labels.cpu(), images.class_names
    fold_of = torch.from_numpy(fold_numbers(images.name, groups, labels, names, count, seed))
    sides = [(fold_of != fold, fold_of == fold) for fold in range(count)]
    return [(images.take(a.nonzero()[:, 0]), images.take(b.nonzero()[:, 0])) for a, b in sides]


def fold_numbers(
    name: str,
    groups: Sequence[str] | None,
    labels: ArrayLike,
    class_names: Sequence[str],
    count: int,
    seed: int = 0,
) -> NDArray[np.intp]:
    """Number the fold that tests each image, [n], counted from 0."""
    check_count("count", count, of="folds", least=2)
    labels = np.asarray(labels)
    if groups is None:
        fold_of, kind = _by_class(labels, count, seed), "image"
    else:
        shares, everywhere = (1 / count,) * count, (True,) * count
        fold_of = part_by_groups(groups, labels, shares, all_classes_in=everywhere, seed=seed)
        kind = "group"
    units = np.arange(len(labels)) if groups is None else np.asarray(groups)
    for fold in range(count):
        if lacking := set(labels.tolist()) - set(labels[fold_of == fold].tolist()):
            least = min(lacking, key=lambda label: len(set(units[labels == label])))
            have, of_all = len(set(units[labels == least])), len(set(units))
            raise TorchcapsError(
                f"{name} cannot be parted into {count} folds that all test every class, because "
                f"{have} of its {of_all} {kind}s show class {class_names[least]!r}; take fewer "
                f"folds, or add {kind}s."
            )
    return fold_of


def check_fold(fold: object) -> None:
    """Refuse what names none of two folds or more."""
    is_pair = isinstance(fold, tuple | list) and len(fold) == 2 and all(map(is_whole, fold))
    if not is_pair or not 0 <= fold[0] <= fold[1]:  # type: ignore[index]
        raise TorchcapsError(
            f"fold must be (number, count), as (2, 5) is the second of five, but came as "
            f"{short(fold)}."
        )


def _by_class(labels: NDArray[np.int64], count: int, seed: int) -> NDArray[np.intp]:
    """Deal out the images of each class to the folds in turn, in an order drawn by the seed."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=generator).numpy()
    order = order[labels[order].argsort(kind="stable")]
    fold_of: NDArray[np.intp] = np.empty(len(order), dtype=np.intp)
    fold_of[order] = np.arange(len(order)) % count
    return fold_of
