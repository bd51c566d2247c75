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
from torchcaps.data.read.packed import either, exactly, opened
from torchcaps.data.registry import PublishedSet, file_set, files_at
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
    """The unsigned bytes of one IDX file with the given number of axes.

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
        values = exactly(file, count, path)
        if file.read(1):
            raise TorchcapsError(
                f"{path} holds more than the {count} bytes that its header announces; it is "
                f"damaged: fetch it again."
            )
    return torch.frombuffer(values, dtype=torch.uint8).reshape(sizes)


MNIST = PublishedSet(
    "60,000 + 10,000 grey digits, 28 × 28",
    "CC BY-SA 3.0, Yann LeCun and Corinna Cortes",
    "http://yann.lecun.com/exdb/mnist/",
    files_at(
        "MNIST/raw/",
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        (
            "train-images-idx3-ubyte.gz",
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        (
            "train-labels-idx1-ubyte.gz",
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        (
            "t10k-images-idx3-ubyte.gz",
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        (
            "t10k-labels-idx1-ubyte.gz",
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
)


@file_set("mnist", FILES, ((1, 28, 28), 10, 60_000), published=MNIST)
def mnist(root: str | os.PathLike[str], split: Literal["train", "test"]) -> ImageSet:
    """MNIST out of the folder that holds its four files, or MNIST/raw, as published.

    Arguments:
        root: the folder of its files.
        split: "train" or "test".

    >>> mnist("data", "test").image_shape  # doctest: +SKIP
    (1, 28, 28)
    """
    return _read("mnist", path_of("root", root), split, ("MNIST/raw", "mnist"), DIGITS)


FASHION_MNIST = PublishedSet(
    "60,000 + 10,000 grey clothes, 28 × 28",
    "MIT licence, Zalando SE",
    "https://github.com/zalandoresearch/fashion-mnist",
    files_at(
        "FashionMNIST/raw/",
        (
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        (
            "train-images-idx3-ubyte.gz",
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        (
            "train-labels-idx1-ubyte.gz",
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        (
            "t10k-images-idx3-ubyte.gz",
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        (
            "t10k-labels-idx1-ubyte.gz",
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
)


@file_set("fashion-mnist", FILES, ((1, 28, 28), 10, 60_000), published=FASHION_MNIST)
def fashion_mnist(root: str | os.PathLike[str], split: Literal["train", "test"]) -> ImageSet:
    """Fashion-MNIST out of the folder that holds its four files, or FashionMNIST/raw.

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
    pictures = either(root, f"{stem}-images-idx3-ubyte", folders=folders, holds=holds)
    # Images and labels of two copies are not mixed.
    answers = either(pictures.parent, f"{stem}-labels-idx1-ubyte", holds=holds)
    images, labels = read_idx(pictures, axes=3), read_idx(answers, axes=1)
    known = LABELS.get(zlib.crc32(labels.numpy().tobytes()))
    if known not in (None, name):
        raise TorchcapsError(
            f"{answers} are the labels of {known}, not of {name}; load them under their own name."
        )
    return ImageSet(name, images.unsqueeze(1), labels.long(), class_names)
