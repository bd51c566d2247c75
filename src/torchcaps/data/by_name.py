"""Data sets by name."""

import os
from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

from torchcaps.data.batch import Images
from torchcaps.data.image_set import ImageSet
from torchcaps.data.make.affnist_style import AffnistStyle
from torchcaps.data.make.diverse_multi_mnist import DiverseMultiMnist
from torchcaps.data.make.expanded import Expanded
from torchcaps.data.make.multi_mnist import MultiMnist
from torchcaps.data.make.part_whole import part_whole
from torchcaps.data.make.sign import sign_set
from torchcaps.data.make.toy import toy_2d
from torchcaps.data.make.viewpoints import Angle, Kind, viewpoints
from torchcaps.data.read.cifar import cifar10, cifar100
from torchcaps.data.read.dogs_vs_cats import dogs_vs_cats
from torchcaps.data.read.downloads import PUBLISHED
from torchcaps.data.read.folder import image_folder
from torchcaps.data.read.idx import fashion_mnist, mnist
from torchcaps.data.read.imagenette import imagenette
from torchcaps.data.read.mat import affnist, svhn
from torchcaps.data.read.norb import smallnorb
from torchcaps.data.read.tiny_imagenet import tiny_imagenet
from torchcaps.data.shown.resize import resized
from torchcaps.errors import TorchcapsError, nearest, short

__all__ = ["PICTURES", "SOURCES", "Split", "load", "what_it_reads", "why_no_source"]

Split = Literal["train", "test"]
Root = str | os.PathLike[str]

# How many images of made data there are, unless told otherwise.
PART_WHOLE_SIZES = {"train": 10_000, "test": 2_000}
TOY_SIZES = {"train": 10_000, "test": 2_000}


def _part_whole(split: Split, root: Root | None) -> ImageSet:
    return part_whole(split, PART_WHOLE_SIZES[split])


def _sign(split: Split, root: Root | None) -> Images:
    return sign_set("grid" if split == "train" else "between")


def _toy_2d(split: Split, root: Root | None) -> ImageSet:
    return toy_2d(split, TOY_SIZES[split])


def _own(split: Split, root: Root | None) -> Images:
    raise TorchcapsError(
        'data "own" stands for images that a Python program holds, and here is none; give them '
        "in Python: fit(recipe, out, own=(train, test))."
    )


def _expanded(root: Root, split: Split) -> Images:
    return Expanded(mnist(root, split), placement="random" if split == "train" else "centred")


def _viewpoints(angle: Angle, tested: Kind) -> Callable[[Root, Split], Images]:
    """Trained on familiar viewpoints, tested on those of one kind."""

    def read(root: Root, split: Split) -> Images:
        kind: Kind = "familiar" if split == "train" else tested
        return viewpoints(smallnorb(root, split), angle, kind)

    return read


def _files(
    name: str, read: Callable[[Root, Split], Images], holds: str
) -> Callable[[Split, Root | None], Images]:
    """A source that needs to be told where its files are."""

    def source(split: Split, root: Root | None) -> Images:
        if root is None:
            fetched = (
                f", into which torchcaps data get {name} --root FOLDER fetches them"
                if name in PUBLISHED
                else ""
            )
            raise TorchcapsError(
                f"{name} needs root, the folder that holds {holds}; on the command line: --root "
                f"FOLDER{fetched}."
            )
        return read(root, split)

    return source


def _with_partners(copies: int) -> Callable[[Root, Split], Images]:
    """Every training digit with so many partners [gu2021]; of the test, one a digit."""

    def read(root: Root, split: Split) -> Images:
        return MultiMnist(mnist(root, split), copies=copies if split == "train" else 1)

    return read


_IDX = "its four files (train-images-idx3-ubyte.gz and so on)"
_MNIST = "the four files of MNIST (train-images-idx3-ubyte.gz and so on)"
_NORB = "the -dat.mat, -cat.mat and -info.mat files of smallNORB"
_ARCHIVE = "its archive, as downloaded, or the folder unpacked from it"

# Those that read files: how, and what their folder holds.
_READERS: dict[str, tuple[Callable[[Root, Split], Images], str]] = {
    "affnist": (affnist, "test.mat or training_and_validation_batches"),
    "affnist-style": (lambda root, split: AffnistStyle(mnist(root, split)), _MNIST),
    "affnist-style-gu": (lambda root, split: AffnistStyle(mnist(root, split), ranges="gu"), _MNIST),
    "cifar10": (cifar10, _ARCHIVE),
    "cifar100": (cifar100, _ARCHIVE),
    "diverse-multi-mnist": (lambda root, split: DiverseMultiMnist(mnist(root, split)), _MNIST),
    "dogs-vs-cats": (dogs_vs_cats, "cat.0.jpg, dog.0.jpg and so on, or its folder train"),
    "expanded-mnist": (_expanded, _MNIST),
    "fashion-mnist": (fashion_mnist, _IDX),
    "folder": (image_folder, "a folder of pictures for each class"),
    "imagenette": (imagenette, "train and val, unpacked from its archive"),
    "mnist": (mnist, _IDX),
    "multi-mnist": (_with_partners(1), _MNIST),
    "multi-mnist-10": (_with_partners(10), _MNIST),
    "multi-mnist-100": (_with_partners(100), _MNIST),
    "multi-mnist-1000": (_with_partners(1000), _MNIST),
    "smallnorb": (smallnorb, "its -dat.mat, -cat.mat and -info.mat files"),
    "smallnorb-azimuth": (_viewpoints("azimuth", "novel"), _NORB),
    "smallnorb-azimuth-familiar": (_viewpoints("azimuth", "familiar"), _NORB),
    "smallnorb-elevation": (_viewpoints("elevation", "novel"), _NORB),
    "smallnorb-elevation-familiar": (_viewpoints("elevation", "familiar"), _NORB),
    "svhn": (svhn, "train_32x32.mat and test_32x32.mat"),
    "tiny-imagenet": (tiny_imagenet, "train, val and wnids.txt, unpacked from its archive"),
}

# Those whose pictures come in any size, and are brought to one while they are read.
PICTURES: dict[str, Callable[..., Images]] = {
    "dogs-vs-cats": dogs_vs_cats,
    "folder": image_folder,
    "imagenette": imagenette,
}

SOURCES: dict[str, Callable[[Split, Root | None], Images]] = {
    "own": _own,
    "part-whole": _part_whole,
    "sign": _sign,
    "toy-2d": _toy_2d,
    **{name: _files(name, read, holds) for name, (read, holds) in _READERS.items()},
}


def load(
    name: str,
    *,
    split: Split = "train",
    root: Root | None = None,
    size: tuple[int, int] | None = None,
    groups: str | None = None,
) -> Images:
    """A data set by its name. The test images are for the end; `hold_out` parts off some for
    validation. Images made out of others are the same on every machine: their seed is 0.

    Arguments:
        name: a name of `SOURCES`, such as "mnist"; "folder" is pictures of your own.
        split: "train" or "test".
        root: the folder of a data set that is files, or the folder above it, laid out as published.
        size: (height, width) to which the images are stretched; without it they are as published.
        groups: which pictures of "folder" belong together, as `image_folder` takes it.

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
    if name in PICTURES and not (size is None and groups is None):
        given = {"size": size} if groups is None else {"size": size, "groups": groups}
        return _files(name, partial(PICTURES[name], **given), _READERS[name][1])(split, root)
    images = SOURCES[name](split, root)
    return images if size is None else resized(images, size)


def what_it_reads(name: str) -> str:
    """The words about a set that is not fetched."""
    if name == "own":
        return "nothing to fetch: images that a Python program holds"
    if name not in _READERS:
        return "nothing to fetch: it is made, of no files"
    return f"not fetched: it reads {_READERS[name][1]}"


def why_no_source(name: str) -> str:
    """The words about a name that is none of `SOURCES`: often it is the folder of the pictures."""
    # Path.is_dir raises where a word is too long for a name of a file.
    if os.sep in name or os.path.isdir(name):  # noqa: PTH112
        return (
            f"{short(name)} is a path, where data takes the name of a set; pictures of your own "
            f'are the set "folder", and root says where they lie: --data folder --root '
            f"{short(name)}"
        )
    return f"{short(name)} is unknown; {nearest(name, SOURCES)}"
