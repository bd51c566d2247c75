"""The IDX format of MNIST and Fashion-MNIST, gzipped or not.

A file is a big-endian header, then bytes: two zeros, the type (8 = unsigned byte), the number of
axes, each axis as a 32-bit number, and the values. http://yann.lecun.com/exdb/mnist/
"""

import math
import os
import struct
import zlib
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from torchcaps._paths import path_of
from torchcaps.data.image_set import ImageSet
from torchcaps.data.read.packed import exactly, file_in, opened, plain_or_gzipped, rest
from torchcaps.data.registry import file_set
from torchcaps.errors import TorchcapsError

# Larger than any data set in this format; a header beyond it is damaged, and is not believed.
MOST_VALUES, MOST_LABELS = 1 << 30, 1 << 24

FILES = "its four files (train-images-idx3-ubyte.gz and so on)"
# What sets that are made of MNIST read.
OF_MNIST = "the four files of MNIST (train-images-idx3-ubyte.gz and so on)"

DIGITS = tuple("0123456789")
CLOTHES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)

# The two sets have the same file names and shapes; the checksums of their labels tell them apart.
LABELS = {
    0xBA07E8EF: "mnist",
    0xEE8604D9: "mnist",
    0x2ED6E46A: "fashion-mnist",
    0x242BC73F: "fashion-mnist",
}


def read_idx(path: str | os.PathLike[str], *, axes: int) -> Tensor:
    """Read the unsigned bytes of one IDX file with the given number of axes.

    Arguments:
        path: the file, packed by gzip or not.
        axes: how many axes the file should have: 3 for images, 1 for labels.

    >>> read_idx("train-images-idx3-ubyte.gz", axes=3).shape  # doctest: +SKIP
    torch.Size([60000, 28, 28])
    """
    path = path_of("path", path)
    with opened(path) as file:
        header = file.read(4)
        if len(header) < 4 or header[:3] != b"\x00\x00\x08" or header[3] != axes:
            raise TorchcapsError(
                f"{path} should begin with 00 00 08 {axes:02x}, the mark of an IDX file of "
                f"bytes with {axes} axes, but begins with {header.hex(' ') or 'nothing'}; is "
                f"it images where labels belong, or another format?"
            )
        sizes = struct.unpack(f">{axes}I", exactly(file, 4 * axes, path))
        count = math.prod(sizes)
        most = MOST_VALUES if axes > 1 else MOST_LABELS
        if not 0 < count <= most:
            raise TorchcapsError(
                f"{path} claims to hold {' × '.join(map(str, sizes))} values; known files of "
                f"this kind hold 1 to {most}: its header is damaged."
            )
        values = rest(file, count, path)
    return torch.frombuffer(values, dtype=torch.uint8).reshape(sizes)


@file_set("mnist", FILES, ((1, 28, 28), 10, 60_000))
def mnist(root: str | os.PathLike[str], split: Literal["train", "test"]) -> ImageSet:
    """Read MNIST out of the folder that holds its four files, or MNIST/raw, as published.

    Arguments:
        root: the folder of its files.
        split: "train" or "test".

    >>> mnist("data", "test").image_shape  # doctest: +SKIP
    (1, 28, 28)
    """
    return _read("mnist", path_of("root", root), split, ("MNIST/raw", "mnist"), DIGITS)


@file_set("fashion-mnist", FILES, ((1, 28, 28), 10, 60_000))
def fashion_mnist(root: str | os.PathLike[str], split: Literal["train", "test"]) -> ImageSet:
    """Read Fashion-MNIST out of the folder that holds its four files, or FashionMNIST/raw.

    Arguments:
        root: the folder of its files.
        split: "train" or "test".

    >>> fashion_mnist("data", "test").image_shape  # doctest: +SKIP
    (1, 28, 28)
    """
    folders = ("FashionMNIST/raw", "fashion-mnist", "fashion_mnist")
    return _read("fashion-mnist", path_of("root", root), split, folders, CLOTHES)


def _read(
    name: str, root: Path, split: str, folders: tuple[str, ...], class_names: tuple[str, ...]
) -> ImageSet:
    stem = {"train": "train", "test": "t10k"}[split]
    holds = {"mnist": "the four files of MNIST", "fashion-mnist": "those of Fashion-MNIST"}[name]
    names = plain_or_gzipped(f"{stem}-images-idx3-ubyte")
    pictures = file_in(root, names, folders=folders, holds=holds)
    # Images and labels of two copies are not mixed.
    names = plain_or_gzipped(f"{stem}-labels-idx1-ubyte")
    answers = file_in(pictures.parent, names, holds=holds)
    images, labels = read_idx(pictures, axes=3), read_idx(answers, axes=1)
    known = LABELS.get(zlib.crc32(labels.numpy().tobytes()))
    if known not in (None, name):
        raise TorchcapsError(
            f"{answers} are the labels of {known}, not of {name}; load them under their own name."
        )
    return ImageSet(name, images.unsqueeze(1), labels.long(), class_names)
