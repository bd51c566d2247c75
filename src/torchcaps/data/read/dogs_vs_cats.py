"""Dogs vs. Cats: photographs of any size, as Kaggle published them for its competition.

A folder train holds cat.0.jpg to cat.12499.jpg and dog.0.jpg to dog.12499.jpg. Its test1 has no
labels. https://www.kaggle.com/c/dogs-vs-cats. Needs pillow, the extra [data].

Ambiguities:
1. [renzulli2025] does not say on which pictures it tests: here on a fifth of each class, drawn by
   the names of the files, so the same on every machine.
"""

import re
from os import PathLike
from pathlib import Path
from typing import Literal

import torch

from torchcaps._paths import path_of
from torchcaps.data.image_set import ImageSet
from torchcaps.data.parting import drawn_share
from torchcaps.data.read.folder import Size, stacked
from torchcaps.data.read.listed import FORMATS, inside
from torchcaps.data.registry import file_set
from torchcaps.errors import TorchcapsError

CLASSES = ("cat", "dog")
NAMED = re.compile(r"(cat|dog)\.\d+\.jpg")
TEST_SHARE = 0.2


# 25,000 labelled pictures less the fifth that is tested on; [renzulli2025] stretches them.
@file_set(
    "dogs-vs-cats",
    "cat.0.jpg, dog.0.jpg and so on, or its folder train",
    ((3, 128, 128), 2, 20_000),
    any_size=True,
)
def dogs_vs_cats(
    root: str | PathLike[str], split: Literal["train", "test"], *, size: Size | None = None
) -> ImageSet:
    """Read Dogs vs. Cats out of the folder train, or the folder above it.

    Arguments:
        root: the folder train, or the one above it.
        split: "train" or "test".
        size: (height, width) to which every picture is stretched; [renzulli2025] takes (128, 128).
            It is needed where pictures differ in size, as the published ones do.

    >>> dogs_vs_cats("data", "test", size=(128, 128))  # doctest: +SKIP
    """
    folder = _folder(path_of("root", root))
    pictures: dict[str, list[Path]] = {name: [] for name in CLASSES}
    for path in inside(folder, folder.resolve()):
        if path.suffix.lower() not in FORMATS:
            continue
        named = NAMED.fullmatch(path.name)
        if named is None:
            raise TorchcapsError(
                f"{path} is named neither cat.NUMBER.jpg nor dog.NUMBER.jpg, so its class is not "
                f"known; take it away, or sort pictures into a folder a class and read them as "
                f'data "folder".'
            )
        pictures[named[1]].append(path)
    files, labels = [], []
    for label, (name, found) in enumerate(pictures.items()):
        if len(found) < 2:
            raise TorchcapsError(
                f"{folder} holds {len(found)} of the pictures {name}.NUMBER.jpg; train and test "
                f"need at least one each."
            )
        chosen = drawn_share(name, found, split, TEST_SHARE, seed=0)
        files += chosen
        labels += [label] * len(chosen)
    images, names = stacked(files, 3, size), tuple(path.name for path in files)
    return ImageSet("dogs-vs-cats", images, torch.tensor(labels), CLASSES, files=names)


def _folder(root: Path) -> Path:
    for folder in (root, root / "train", root / "dogs-vs-cats" / "train"):
        if folder.is_dir() and any(NAMED.fullmatch(path.name) for path in folder.iterdir()):
            return folder
    raise TorchcapsError(
        f"neither {root} nor a folder train in it holds cat.0.jpg, dog.0.jpg and so on; unpack "
        f"train.zip, and point to the folder of its pictures."
    )
