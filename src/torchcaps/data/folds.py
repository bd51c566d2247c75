"""Folds: every image is tested once, by a network that has not seen it or any of its group."""

import torch
from torch import Tensor

from torchcaps._checks import check_count
from torchcaps.data.image_set import ImageSet
from torchcaps.data.parting import part_by_groups
from torchcaps.errors import TorchcapsError


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
    check_count("count", count, of="folds", least=2)
    labels = images.labels.cpu()
    if images.groups is None:
        fold_of, kind = _by_class(labels, count, seed), "image"
    else:
        shares, everywhere = (1 / count,) * count, (True,) * count
        part = part_by_groups(images.groups, labels, shares, all_classes_in=everywhere, seed=seed)
        fold_of, kind = torch.from_numpy(part), "group"
    found = []
    for fold in range(count):
        test = fold_of == fold
        lacking = set(labels.tolist()) - set(labels[~test].tolist())
        if lacking or not bool(test.any()):
            whose = f"class {images.class_names[min(lacking)]!r}" if lacking else images.name
            raise TorchcapsError(
                f"{images.name} cannot be parted into {count} folds, because {whose} has too few "
                f"{kind}s; take fewer folds, or add {kind}s."
            )
        found.append((images.take((~test).nonzero()[:, 0]), images.take(test.nonzero()[:, 0])))
    return found


def _by_class(labels: Tensor, count: int, seed: int) -> Tensor:
    """Deal out the images of each class to the folds in turn, in an order drawn by the seed."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    order = order[labels[order].argsort(stable=True)]
    fold_of = torch.empty_like(order)
    fold_of[order] = torch.arange(len(order)) % count
    return fold_of
