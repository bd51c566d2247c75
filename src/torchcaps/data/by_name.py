"""Data sets by name."""

import os
from functools import partial
from typing import get_args

from torchcaps._lazy import load_modules
from torchcaps.data.batch import Images
from torchcaps.data.registry import HOLDS, PICTURES, SOURCES, Root, Split, in_folder
from torchcaps.data.shown.resize import resized
from torchcaps.errors import TorchcapsError, nearest, short

for _room in ("make", "read"):
    load_modules(f"torchcaps.data.{_room}")


def _own(split: Split, root: Root | None) -> Images:
    raise TorchcapsError(
        'data "own" stands for images that a Python program holds, and here is none; give them '
        "in Python: fit(recipe, out, own=(train, test))."
    )


SOURCES["own"] = _own


def load(
    name: str,
    *,
    split: Split = "train",
    root: Root | None = None,
    size: tuple[int, int] | None = None,
    groups: str | None = None,
    fold: tuple[int, int] | None = None,
) -> Images:
    """Load a data set by its name. The test images are for the end; `hold_out` parts off some for
    validation. Images made out of others are the same on every machine: their seed is 0.

    Arguments:
        name: a name of `SOURCES`, such as "mnist"; "folder" is pictures of your own.
        split: "train" or "test".
        root: the folder of a data set that is files, or the folder above it, laid out as published.
        size: (height, width) to which the images are stretched; without it they are as published.
        groups: which pictures of "folder" belong together, as `image_folder` takes it.
        fold: which of how many folds of "folder" it is, such as (2, 5), as `image_folder` takes it.

    >>> load("part-whole", split="test").image_shape
    (1, 32, 32)
    """
    if not isinstance(name, str) or name not in SOURCES:
        raise TorchcapsError(f"data {why_no_source(str(name))}.")
    if split not in get_args(Split):
        raise TorchcapsError(
            f"split={short(split)} is unknown; {nearest(str(split), get_args(Split))}. Validation "
            f"images come out of the training ones: images.hold_out."
        )
    if groups is not None and name != "folder":
        raise TorchcapsError(
            f'groups are read of the paths of pictures, so of data "folder" alone, but came with '
            f"{name}; from_arrays and from_dataset take a list of them."
        )
    if fold is not None and name != "folder":
        raise TorchcapsError(
            f'folds are made of data "folder" alone, but fold came with {name}; data.folds makes '
            f"them of images in memory."
        )
    given = {"size": size, "groups": groups, "fold": fold}
    given = {option: value for option, value in given.items() if value is not None}
    if name in PICTURES and given:
        return in_folder(name, partial(PICTURES[name], **given))(split, root)
    images = SOURCES[name](split, root)
    return images if size is None else resized(images, size)


def what_it_reads(name: str) -> str:
    """Say why a set is not fetched, and what it reads."""
    if name == "own":
        return "nothing to fetch: images that a Python program holds"
    if name not in HOLDS:
        return "nothing to fetch: it is made, of no files"
    return f"not fetched: it reads {HOLDS[name]}"


def why_no_source(name: str) -> str:
    """Say why a name is none of `SOURCES`: often it is the folder of the pictures."""
    # Path.is_dir raises where a word is too long for a name of a file.
    if os.sep in name or os.path.isdir(name):  # noqa: PTH112
        return (
            f"{short(name)} is a path, where data takes the name of a set; pictures of your own "
            f'are the set "folder", and root says where they lie: --data folder --root '
            f"{short(name)}"
        )
    return f"{short(name)} is unknown; {nearest(name, SOURCES)}"
