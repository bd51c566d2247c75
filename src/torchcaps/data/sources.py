"""Data sets by name, and validation images out of the training images."""

import os
from collections.abc import Callable
from typing import Literal, get_args

from torchcaps.data.cifar import cifar10, cifar100
from torchcaps.data.folder import image_folder
from torchcaps.data.idx import fashion_mnist, mnist
from torchcaps.data.image_set import ImageSet
from torchcaps.data.mat import affnist, svhn
from torchcaps.data.norb import smallnorb
from torchcaps.data.part_whole import part_whole
from torchcaps.errors import TorchcapsError, nearest

__all__ = ["SOURCES", "Split", "load"]

Split = Literal["train", "test"]
Root = str | os.PathLike[str]

# How many images of made data there are, unless told otherwise.
PART_WHOLE_SIZES = {"train": 10_000, "test": 2_000}


def _part_whole(split: Split, root: Root | None) -> ImageSet:
    return part_whole(split, PART_WHOLE_SIZES[split])


def _files(
    name: str, read: Callable[[Root, Split], ImageSet], holds: str
) -> Callable[[Split, Root | None], ImageSet]:
    """A source that needs to be told where its files are."""

    def source(split: Split, root: Root | None) -> ImageSet:
        if root is None:
            raise TorchcapsError(
                f"{name} needs root, the folder that holds {holds}; on the command line: --root "
                f"FOLDER."
            )
        return read(root, split)

    return source


_IDX = "its four files (train-images-idx3-ubyte.gz and so on)"
_ARCHIVE = "its archive, as downloaded, or the folder unpacked from it"

SOURCES: dict[str, Callable[[Split, Root | None], ImageSet]] = {
    "affnist": _files("affnist", affnist, "test.mat or training_and_validation_batches"),
    "cifar10": _files("cifar10", cifar10, _ARCHIVE),
    "cifar100": _files("cifar100", cifar100, _ARCHIVE),
    "fashion-mnist": _files("fashion-mnist", fashion_mnist, _IDX),
    "folder": _files("folder", image_folder, "a folder of pictures for each class"),
    "mnist": _files("mnist", mnist, _IDX),
    "part-whole": _part_whole,
    "smallnorb": _files("smallnorb", smallnorb, "its -dat.mat, -cat.mat and -info.mat files"),
    "svhn": _files("svhn", svhn, "train_32x32.mat and test_32x32.mat"),
}


def load(name: str, *, split: Split = "train", root: Root | None = None) -> ImageSet:
    """A data set by its name. The test images are for the end; `ImageSet.hold_out` parts off
    some for validation.

    root: the folder of a data set that is files, or the folder above it, laid out as published.
        "folder" is pictures of your own, of one size; `image_folder` brings others to one.

    >>> load("part-whole", split="test").images.shape
    torch.Size([2000, 1, 32, 32])
    """
    if name not in SOURCES:
        raise TorchcapsError(f"data {name!r} is unknown; {nearest(name, SOURCES)}.")
    if split not in get_args(Split):
        raise TorchcapsError(
            f"split={split!r} is unknown; {nearest(split, get_args(Split))}. Validation images "
            f"come out of the training ones: images.hold_out."
        )
    return SOURCES[name](split, root)
