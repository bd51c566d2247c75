"""What a run tells of groups of images: those that names suggest, and how its own are parted."""

import logging
import os
from typing import Any

from torchcaps.data import Images
from torchcaps.data.read.grouping import how_parted, suggested, told_of_folder
from torchcaps.data.read.listed import Listed
from torchcaps.train.recipe import Recipe


def warn_of_groups(
    recipe: Recipe, root: str | os.PathLike[str] | None, own: tuple[Images, Images] | None
) -> None:
    """Warn where the test has pictures that names group with training ones, and nobody said so."""
    hint = None
    if own is not None:
        train, test = map(as_listed, own)
        if train.groups is None:
            hint = suggested(train.files, test.files, len(train.class_names))
    elif recipe.data == "folder" and not (recipe.test_data or recipe.fold) and root is not None:
        # Cross-validation says it once, of all folds.
        hint = told_of_folder(root, recipe.groups)[1]
    if hint is not None:
        logging.getLogger("torchcaps").warning("%s", hint.text())


def groups_of_result(
    recipe: Recipe, images: Images, training: Images, validation: Images, test: Images
) -> dict[str, Any]:
    """Say how many groups lie where, and how even that is; nothing of images without groups."""
    whole, tested = as_listed(images), as_listed(test)
    if whole.groups is None or tested.groups is None:
        return {}
    counts = {
        name: len(set(as_listed(part).groups or ()))
        for name, part in (("train", training), ("validation", validation), ("test", test))
        if name != "validation" or recipe.validation_share
    }
    return {"groups": {**counts, "parted": how_parted(whole, tested, recipe.groups)}}


def as_listed(images: Images) -> Listed:
    """Write images as a folder is listed, as far as they know it."""
    labels = getattr(images, "labels", None)
    return Listed(
        images.class_names,
        getattr(images, "files", None) or (),
        [] if labels is None or labels.ndim > 1 else labels.tolist(),
        getattr(images, "groups", None),
        [],
    )
