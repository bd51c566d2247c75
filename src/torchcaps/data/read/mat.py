"""SVHN and affNIST, whose files are MATLAB's; what reads these trusts them.

So a file is read only when it has the SHA-256 of the published one: of files that were damaged on
purpose some ended the process inside `scipy.io.loadmat`.
"""

import os
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal
from zipfile import ZipFile

import numpy as np
import torch
from numpy.typing import NDArray

from torchcaps._extras import needing
from torchcaps._paths import path_of
from torchcaps.data.image_set import ImageSet
from torchcaps.data.read.idx import DIGITS
from torchcaps.data.read.packed import check_published, file_in, opened
from torchcaps.data.registry import PUBLISHED, file_set

SVHN_FILES = "train_32x32.mat and test_32x32.mat"
AFFNIST_FILES = "test.mat.zip and training_batches.zip"


@file_set("svhn", SVHN_FILES, ((3, 32, 32), 10, 73_257))
def svhn(root: str | os.PathLike[str], split: Literal["train", "test"]) -> ImageSet:
    """Read SVHN's cropped digits, out of the folder that holds train_32x32.mat and test_32x32.mat.

    The digit 0 has label 10 there, and 0 here. http://ufldl.stanford.edu/housenumbers/

    Arguments:
        root: the folder of its files.
        split: "train" or "test".

    >>> svhn("data", "test").image_shape  # doctest: +SKIP
    (3, 32, 32)
    """
    path = file_in(
        path_of("root", root),
        (f"{split}_32x32.mat",),
        folders=("SVHN", "svhn"),
        holds=SVHN_FILES,
    )
    with opened(path) as file:
        _check("svhn", file, path)
        found = _variables(file, "X", "y")
    # [row, column, channel, image]
    return _digits("svhn", found["X"].transpose(3, 2, 0, 1), found["y"] % 10)


@file_set("affnist", AFFNIST_FILES, ((1, 40, 40), 10, 1_600_000))
def affnist(root: str | os.PathLike[str], split: Literal["train", "test"]) -> ImageSet:
    """Read affNIST out of the folder that holds test.mat.zip and training_batches.zip.

    https://www.cs.toronto.edu/~tijmen/affNIST/

    Arguments:
        root: the folder of its files.
        split: "train" or "test".

    >>> affnist("data/affnist", "test").image_shape  # doctest: +SKIP
    (1, 40, 40)
    """
    path = file_in(
        path_of("root", root),
        ({"train": "training_batches.zip", "test": "test.mat.zip"}[split],),
        folders=("affNIST", "affnist"),
        holds=AFFNIST_FILES,
    )
    images, labels = [], []
    with opened(path) as file:
        _check("affnist", file, path)
        with ZipFile(file) as archive:
            for member in _batches(archive):
                with archive.open(member) as content:
                    batch = _variables(content, "affNISTdata")["affNISTdata"][0, 0]
                # A column of 1600 numbers is an image, row by row.
                images.append(batch["image"].T)
                labels.append(batch["label_int"].ravel())
    pixels = np.concatenate(images).reshape(-1, 1, 40, 40)
    return _digits("affnist", pixels, np.concatenate(labels))


def _check(name: str, file: IO[bytes], path: Path) -> None:
    (published,) = (each for each in PUBLISHED[name].files if each.path.endswith(path.name))
    check_published(file, path, published.sha256)


def _batches(archive: ZipFile) -> list[str]:
    """List 1.mat, 2.mat and so on, in this order, or the one file that there is."""
    names = [PurePosixPath(name) for name in archive.namelist()]
    held = [name for name in names if name.suffix == ".mat" and not name.name.startswith(".")]
    return [str(name) for name in sorted(held, key=lambda name: (len(name.stem), name.stem))]


def _variables(file: IO[bytes], *names: str) -> dict[str, Any]:
    with needing("scipy", room="data", extra="data"):
        from scipy.io import loadmat
    return dict(loadmat(file, variable_names=names))


def _digits(name: str, pixels: NDArray[np.uint8], labels: NDArray[np.number]) -> ImageSet:
    answers = torch.from_numpy(labels.ravel().astype(np.int64))
    return ImageSet(name, torch.from_numpy(np.ascontiguousarray(pixels)), answers, DIGITS)
