"""The data sets that have a name. Each is entered where it is defined: how it is read, what its
folder holds, its sizes. Where files are published stands in published.toml.
"""

import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Literal, NamedTuple, TypeVar

from torchcaps.data.batch import Images
from torchcaps.errors import TorchcapsError, nearest

Split = Literal["train", "test"]
Root = str | os.PathLike[str]
Sizes = tuple[tuple[int, int, int], int, int]

Source = Callable[[Split, Root | None], Images]
Maker = TypeVar("Maker", bound=Callable[[Split], Images])
Reader = TypeVar("Reader", bound=Callable[..., Images])


class DataSet(NamedTuple):
    """Images as networks take them, and how many there are to train on."""

    image: tuple[int, int, int]
    n_classes: int
    n_train: int
    has_files: bool = True


@dataclass(frozen=True)
class RemoteFile:
    """One file as it is published."""

    path: str  # below the root that readers are given
    size: int
    sha256: str
    mirrors: tuple[str, ...]


@dataclass(frozen=True)
class PublishedSet:
    """The files of one data set, both splits: which bytes they are, and who may use them how."""

    holds: str
    terms: str
    home: str
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return sum(file.size for file in self.files)


SOURCES: dict[str, Source] = {}
# Those whose sizes are known before any file is read.
SETS: dict[str, DataSet] = {}
# Of those that read files, what their folder holds.
HOLDS: dict[str, str] = {}
# Those whose pictures come in any size, and are brought to one while they are read.
PICTURES: dict[str, Callable[..., Images]] = {}


def made_set(name: str, sizes: Sizes) -> Callable[[Maker], Maker]:
    """Enter images that are made of no files. `sizes` are those of `DataSet`."""

    def enter(make: Maker) -> Maker:
        SOURCES[name] = lambda split, _: make(split)
        SETS[name] = DataSet(*sizes, has_files=False)
        return make

    return enter


def file_set(
    name: str,
    holds: str,
    sizes: Sizes | None = None,
    *,
    any_size: bool = False,
) -> Callable[[Reader], Reader]:
    """Enter a reader of files, called as (root, split).

    holds: what its folder holds, for sentences.
    sizes: those of `DataSet`, where they are known.
    any_size: whether its pictures come in any size, so that the reader takes `size`.
    """

    def enter(read: Reader) -> Reader:
        HOLDS[name] = holds
        SOURCES[name] = in_folder(name, read)
        if sizes is not None:
            SETS[name] = DataSet(*sizes)
        if any_size:
            PICTURES[name] = read
        return read

    return enter


def in_folder(name: str, read: Callable[..., Images]) -> Source:
    """Make a source that needs to be told where its files are."""

    def source(split: Split, root: Root | None) -> Images:
        if root is None:
            fetched = (
                f", into which torchcaps data get {name} --root FOLDER fetches them"
                if name in PUBLISHED
                else ""
            )
            raise TorchcapsError(
                f"{name} needs root, the folder that holds {HOLDS[name]}; on the command line: "
                f"--root FOLDER{fetched}."
            )
        return read(root, split)

    return source


_TABLE = resources.files("torchcaps.data").joinpath("published.toml").read_text("utf-8")
# Those whose files can be fetched.
PUBLISHED = {
    name: PublishedSet(
        each["holds"],
        each["terms"],
        each["home"],
        tuple(
            RemoteFile(
                f"{each['folder']}{file['name']}",
                file["size"],
                file["sha256"],
                tuple(f"{mirror}{file['name']}" for mirror in each["mirrors"]),
            )
            for file in each["files"]
        ),
    )
    for name, each in tomllib.loads(_TABLE).items()
}


def data_set(name: str) -> DataSet:
    """Return the sizes of a data set; no file is read for them."""
    if name not in SETS:
        raise TorchcapsError(f"the sizes of data {name!r} are not known; {nearest(name, SETS)}.")
    return SETS[name]
