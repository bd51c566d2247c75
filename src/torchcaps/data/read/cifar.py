"""CIFAR-10 and CIFAR-100: the binary and the Python version, in a folder or as downloaded.

A record of the binary version is the label (CIFAR-100: the coarse one, then the fine one) and 3072
bytes: red, green and blue, each 32 rows of 32. The Python version pickles the same rows with a list
of labels; it is read when its MD5 is that of the published file. https://www.cs.toronto.edu/~kriz/cifar.html
"""

import hashlib
import io
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from torchcaps._paths import path_of
from torchcaps.data.image_set import ImageSet
from torchcaps.data.read.packed import tar_members, whole
from torchcaps.data.registry import file_set
from torchcaps.errors import TorchcapsError

Bytes = NDArray[np.uint8]

PIXELS = 3 * 32 * 32
# The longest file is CIFAR-100's for training in the Python version: 155 megabytes.
MOST_BYTES = 1 << 28


class _Layout(NamedTuple):
    """How the authors named one set, its folders and its files, which may end in .bin."""

    name: str
    archive: str
    folders: dict[str, str]
    files: dict[str, tuple[str, ...]]
    class_names: tuple[str, ...]
    # In a record of the binary version the wanted label is the last of so many.
    label_bytes: int
    label_key: str

    def files_of(self, version: str, split: str) -> list[str]:
        return [f"{name}{'.bin' * (version == 'binary')}" for name in self.files[split]]


# Of the files of the Python version, as everybody else compares them. Nobody finds another file of
# such an MD5 that was given, though two of the same may be made.
PYTHON_MD5 = {
    *("c99cafc152244af753f735de768cd75f", "d4bba439e000b95fd0a9bffe97cbabec"),
    *("54ebc095f3ab1f0389bbae665268c751", "634d18415352ddfa80567beed471001a"),
    *("482c414d41f54cd18b22e5b47cb7c3cb", "40351d587109b95175f43aff81a1287e"),
    *("16019d7e3df5f24257cddd939b257f8d", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
}

_TEN = _Layout(
    name="cifar10",
    archive="cifar-10",
    folders={"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"},
    files={"train": tuple(f"data_batch_{k}" for k in range(1, 6)), "test": ("test_batch",)},
    class_names=(
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    ),
    label_bytes=1,
    label_key="labels",
)

_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile
cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp
lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree
orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum
rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train
trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

_HUNDRED = _Layout(
    name="cifar100",
    archive="cifar-100",
    folders={"binary": "cifar-100-binary", "python": "cifar-100-python"},
    files={"train": ("train",), "test": ("test",)},
    class_names=tuple(_FINE.split()),
    label_bytes=2,
    label_key="fine_labels",
)


_ARCHIVE = "its archive, as downloaded, or the folder unpacked from it"


@file_set("cifar10", _ARCHIVE, ((3, 32, 32), 10, 50_000))
def cifar10(root: str | os.PathLike[str], split: Literal["train", "test"]) -> ImageSet:
    """Read CIFAR-10 out of its files, the folder above them, or one of its two archives.

    Arguments:
        root: the folder of its files.
        split: "train" or "test".

    >>> cifar10("data", "test").image_shape  # doctest: +SKIP
    (3, 32, 32)
    """
    return _read(_TEN, path_of("root", root), split)


@file_set("cifar100", _ARCHIVE, ((3, 32, 32), 100, 50_000))
def cifar100(root: str | os.PathLike[str], split: Literal["train", "test"]) -> ImageSet:
    """Read CIFAR-100 with its hundred fine classes; root as in `cifar10`.

    Arguments:
        root: the folder of its files.
        split: "train" or "test".

    >>> len(cifar100("data", "test").class_names)  # doctest: +SKIP
    100
    """
    return _read(_HUNDRED, path_of("root", root), split)


def _read(layout: _Layout, root: Path, split: str) -> ImageSet:
    version, contents = _contents(layout, root, split)
    parse = _binary if version == "binary" else _python
    images, labels = zip(*(parse(layout, path, content) for path, content in contents), strict=True)
    counts = [len(batch) for batch in labels]
    if len(set(counts)) > 1:
        raise TorchcapsError(
            f"the {len(counts)} batches of {layout.name} in {root} hold {counts} images, which "
            f"should be equally many; the smaller ones are cut short: fetch them again."
        )
    pixels = torch.from_numpy(np.concatenate(images)).reshape(-1, 3, 32, 32)
    answers = torch.from_numpy(np.concatenate(labels)).long()
    return ImageSet(layout.name, pixels, answers, layout.class_names)


def _contents(
    layout: _Layout, root: Path, split: str
) -> tuple[str, Iterator[tuple[Path, bytearray]]]:
    """Find the version that is there, and its files of this split, read one at a time."""
    for version, inside in layout.folders.items():
        names = layout.files_of(version, split)
        for folder in (root, root / inside):
            if (folder / names[0]).is_file():
                paths = [folder / name for name in names]
                return version, ((path, whole(path, most=MOST_BYTES)) for path in paths)
    archives = [f"{layout.archive}-{version}.tar.gz" for version in layout.folders]
    for archive in (root, *(root / each for each in archives)):
        if archive.is_file():
            return _unpacked(layout, archive, split)
    raise TorchcapsError(
        f"{layout.name} is not in {root}; point to the folder that holds {', '.join(archives)}, or "
        f"the folder unpacked from either."
    )


def _unpacked(
    layout: _Layout, archive: Path, split: str
) -> tuple[str, Iterator[tuple[Path, bytearray]]]:
    inside = {
        version: [f"{folder}/{name}" for name in layout.files_of(version, split)]
        for version, folder in layout.folders.items()
    }
    found = tar_members(
        archive, [each for names in inside.values() for each in names], most=MOST_BYTES
    )
    for version, names in inside.items():
        if all(name in found for name in names):
            return version, ((archive / name, found.pop(name)) for name in names)
    wanted = " or ".join(names[-1] for names in inside.values())
    raise TorchcapsError(
        f"{archive} should hold {wanted} and the files beside it, but does not; it is another "
        f"archive, or cut short: fetch it again."
    )


def _binary(layout: _Layout, path: Path, content: bytearray) -> tuple[Bytes, Bytes]:
    record = layout.label_bytes + PIXELS
    if not content or len(content) % record:
        raise TorchcapsError(
            f"{path} holds {len(content)} bytes, which is no whole number of images of {record} "
            f"bytes; it is cut short, or not of {layout.name}: fetch it again."
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, record)
    return rows[:, layout.label_bytes :], rows[:, layout.label_bytes - 1]


def _python(layout: _Layout, path: Path, content: bytearray) -> tuple[Bytes, NDArray[np.integer]]:
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found not in PYTHON_MD5:
        raise TorchcapsError(
            f"{path} is not the published file: its MD5 begins with {found[:12]}, and a pickle of "
            f"others is not opened, since it may run code; fetch it again, or the binary version."
        )
    batch = _Unpickler(io.BytesIO(content), encoding="latin1").load()
    return batch["data"], np.array(batch[layout.label_key])


class _Unpickler(pickle.Unpickler):
    """Knows the three names with which numpy writes an array, and looks up no other."""

    known: ClassVar = {
        "_reconstruct": np.empty(0).__reduce__()[0],
        "ndarray": np.ndarray,
        "dtype": np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        if name not in self.known:
            raise TorchcapsError(
                f"a pickle of CIFAR asks for {module}.{name}, where only arrays belong; nothing of "
                f"it was run."
            )
        return self.known[name]
