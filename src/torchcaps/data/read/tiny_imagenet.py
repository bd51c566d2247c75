"""Tiny ImageNet: 200 classes of 500 photographs, 64 × 64, as published.

tiny-imagenet-200/wnids.txt                       the 200 names of classes, n01443537 and so on
tiny-imagenet-200/words.txt                       what each name of ImageNet means, a tab between
tiny-imagenet-200/train/NAME/images/NAME_0.JPEG   500 pictures a class
tiny-imagenet-200/val/images/val_0.JPEG           50 a class, the class of each in
tiny-imagenet-200/val/val_annotations.txt         a line a picture: file, class and a box, by tabs

Needs pillow, the extra [data]. http://cs231n.stanford.edu/tiny-imagenet-200.zip

Departures:
1. Its test pictures have no public labels: those of val are the test, as in most papers.
"""

from os import PathLike
from pathlib import Path
from typing import Literal

import torch

from torchcaps._paths import path_of
from torchcaps.data.image_set import ImageSet
from torchcaps.data.read.folder import stacked
from torchcaps.data.read.listed import FORMATS, inside
from torchcaps.data.read.packed import whole
from torchcaps.data.registry import file_set
from torchcaps.errors import TorchcapsError, short

FOLDER = "tiny-imagenet-200"
# The published lists are far shorter: words.txt, the longest, has three megabytes.
MOST_BYTES = 1 << 24
# Of the name of a class, which has nine; bytes of the name of a file, as systems hold them.
MOST_LETTERS, MOST_OF_NAME = 100, 255


@file_set(
    "tiny-imagenet",
    "train, val and wnids.txt, unpacked from its archive",
    ((3, 64, 64), 200, 100_000),
)
def tiny_imagenet(root: str | PathLike[str], split: Literal["train", "test"]) -> ImageSet:
    """Read Tiny ImageNet out of the folder tiny-imagenet-200, or the one above it; the test is
    `val`.

    Arguments:
        root: the folder of its files, or the one above it.
        split: "train" or "test".

    >>> tiny_imagenet("data", "test").image_shape  # doctest: +SKIP
    (3, 64, 64)
    """
    root = path_of("root", root)
    home = next((each for each in (root, root / FOLDER) if (each / "wnids.txt").is_file()), None)
    if home is None:
        raise TorchcapsError(
            f"neither {root} nor a folder {FOLDER} in it holds wnids.txt; unpack {FOLDER}.zip, and "
            f"point to the folder that holds train, val and wnids.txt."
        )
    wnids = [fields[0] for fields in _lines(home / "wnids.txt", 1)]
    if len(set(wnids)) != len(wnids) or len(wnids) < 2:
        raise TorchcapsError(
            f"{home / 'wnids.txt'} must name two or more classes, each once, but has {len(wnids)} "
            f"lines with {len(set(wnids))} names; it is damaged: unpack it again."
        )
    for wnid in wnids:
        # A name with a folder in it could lead anywhere.
        if Path(wnid).name != wnid or len(wnid) > MOST_LETTERS:
            raise TorchcapsError(
                f"{home / 'wnids.txt'} must name classes such as n01443537, but has "
                f"{short(wnid)}; it is damaged: unpack it again."
            )
    files = _training(home, wnids) if split == "train" else _validation(home, wnids)
    images = stacked([path for path, _ in files], 3)
    labels = torch.tensor([label for _, label in files])
    names = tuple(path.relative_to(home).as_posix() for path, _ in files)
    return ImageSet("tiny-imagenet", images, labels, _meanings(home, wnids), files=names)


def _training(home: Path, wnids: list[str]) -> list[tuple[Path, int]]:
    found = []
    for label, wnid in enumerate(wnids):
        folder = home / "train" / wnid / "images"
        if not folder.is_dir():
            raise TorchcapsError(
                f"there is no folder {folder}, though wnids.txt names that class; the archive was "
                f"not unpacked to its end: unpack it again."
            )
        pictures = [p for p in inside(folder, home.resolve()) if p.suffix.lower() in FORMATS]
        found += [(path, label) for path in pictures]
    if not found:
        raise TorchcapsError(f"{home / 'train'} holds no pictures; unpack the archive again.")
    return found


def _validation(home: Path, wnids: list[str]) -> list[tuple[Path, int]]:
    number = {wnid: label for label, wnid in enumerate(wnids)}
    notes = home / "val" / "val_annotations.txt"
    found = []
    for name, wnid, *_ in _lines(notes, 2):
        path = home / "val" / "images" / name
        # A name with a folder in it could lead anywhere; a long one is no name to a system.
        if wnid not in number or path.name != name or len(name.encode()) > MOST_OF_NAME:
            raise TorchcapsError(
                f"{notes} says that the image {short(name)} shows the class {short(wnid)}, but "
                f"the set has no such image or no such class; the file is damaged: unpack it again."
            )
        found.append((path, number[wnid]))
    if not found:
        raise TorchcapsError(f"{notes} names no pictures; it is damaged: unpack it again.")
    return found


def _meanings(home: Path, wnids: list[str]) -> tuple[str, ...]:
    """Return the first word for each class, and its name where two classes share the word."""
    words = {wnid: meaning for wnid, meaning, *_ in _lines(home / "words.txt", 2)}
    first = [words.get(wnid, wnid).split(",")[0].strip() for wnid in wnids]
    return tuple(
        word if first.count(word) == 1 else f"{word} {wnid}"
        for word, wnid in zip(first, wnids, strict=True)
    )


def _lines(path: Path, fields: int) -> list[list[str]]:
    """Split each line that is not empty at its tabs, into at least so many fields."""
    if not path.is_file():
        raise TorchcapsError(f"there is no file {path}; unpack the whole archive.")
    try:
        text = whole(path, most=MOST_BYTES).decode()
    except UnicodeDecodeError:
        raise TorchcapsError(f"{path} is no text; it is damaged: unpack it again.") from None
    rows = [line.split("\t") for line in text.splitlines() if line.strip()]
    for at, row in enumerate(rows):
        if len(row) < fields:
            raise TorchcapsError(
                f"line {at + 1} of {path} should have {fields} fields with tabs between, but is "
                f"{rows[at][0][:40]!r}; it is damaged: unpack it again."
            )
    return rows
