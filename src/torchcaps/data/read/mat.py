"""MATLAB files of level 5, as far as SVHN and affNIST need them: numeric arrays, maybe in a struct.

A file is a header of 128 bytes and a row of elements: a tag (type, number of bytes) and the bytes,
filled up to a multiple of 8; up to 4 bytes may lie in the tag itself. An array is an element of
elements: flags, sizes, name, values. An element may be zlib-compressed. Numbers lie column by
column, often in a narrower type than the array's. MAT-File Format, The MathWorks,
https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf

`scipy.io.loadmat` is not used, because it trusts the file: of the damaged ones in
tests/data/test_mat.py three end the process (scipy 1.17.1: an unknown type of values, a complex
array without its imaginary part, one flipped byte), and one takes two gigabytes.
"""

import math
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from torchcaps._paths import path_of
from torchcaps.data.image_set import ImageSet
from torchcaps.data.read.idx import DIGITS
from torchcaps.data.read.packed import (
    CHUNK,
    Readable,
    damaged,
    exactly,
    file_in,
    known_numbers,
    opened,
)
from torchcaps.data.registry import file_set
from torchcaps.errors import TorchcapsError

# Twice affNIST's test images, which are the largest array of the two sets.
MOST_BYTES = 1 << 30

_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15
_STRUCT = 2
_NUMERIC = range(6, 16)
_COMPLEX = 0x0800
# How values are stored, by the type of their element.
_STORED = {
    **{1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4"},
    **{9: "f8", 12: "i8", 13: "u8"},
}


class _Tag(NamedTuple):
    kind: int
    size: int
    # The bytes of a small element, which lie in the tag.
    small: bytes | None


class _Request:
    """Names that are asked for, all names that were seen, and the arrays found."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.seen: list[str] = []
        self.found: dict[str, NDArray[np.number]] = {}

    def holds(self, name: str) -> bool:
        self.seen.append(name.encode("unicode_escape").decode())
        return name in self.names


def read_mat(
    path: str | os.PathLike[str], requested: Sequence[str]
) -> dict[str, NDArray[np.number]]:
    """Read some numeric arrays of a MATLAB file, in the type that they are stored in.

    requested: names of variables, or of fields of a struct: `name.field`.
    """
    path = path_of("path", path)
    request = _Request(requested)
    with opened(path) as file:
        order = _byte_order(file.read(128), path)
        size = os.fstat(file.fileno()).st_size
        while (start := file.tell()) < size:
            kind, count = struct.unpack(f"{order}II", exactly(file, 8, path))
            end = start + 8 + count
            if end > size:
                raise TorchcapsError(
                    f"{path} has {size} bytes, but an element in it ends at byte {end}; it is cut "
                    f"short: fetch it again."
                )
            inflated = _Inflated(file, count, path) if kind == _COMPRESSED else None
            if inflated is not None:
                kind, count = struct.unpack(f"{order}II", exactly(inflated, 8, path))
            if kind == _MATRIX:
                reader = _Reader(inflated or file, count, order, path)
                if reader.variable(request) and inflated is not None:
                    inflated.finish()
            # What nobody wants is passed over, packed as it is.
            file.seek(end)
    if missing := [name for name in requested if name not in request.found]:
        held = ", ".join(request.seen[:12]) or "nothing"
        raise TorchcapsError(
            f"{path} lacks {' and '.join(missing)}; it holds {held}: it is another file."
        )
    return request.found


def _byte_order(header: bytes, path: Path) -> str:
    mark = header[124:128]
    if mark == b"\x00\x02IM" or header.startswith(b"\x89HDF"):
        raise TorchcapsError(
            f"{path} is a MATLAB 7.3 file, which is HDF5 inside; save it again with -v7."
        )
    order = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(mark)
    if order is None:
        raise TorchcapsError(
            f"{path} should have 00 01 49 4d, the mark of a MATLAB 5 file, at byte 124, but has "
            f"{mark.hex(' ') or 'nothing'}; it is another format, or damaged."
        )
    return order


class _Inflated:
    """The bytes of a zlib stream in the next `count` of a file, made as they are asked for."""

    def __init__(self, file: IO[bytes], count: int, path: Path) -> None:
        self.file, self.left, self.path = file, count, path
        self.stream = zlib.decompressobj()

    def read(self, count: int, /) -> bytes:
        while not self.stream.eof:
            packed = self.stream.unconsumed_tail
            if not packed:
                packed = self.file.read(min(CHUNK, self.left))
                self.left -= len(packed)
            # A count of 0 would lift the limit.
            values = self.stream.decompress(packed, max(count, 1))
            if values or not packed:
                return values
        return b""

    def finish(self) -> None:
        """See that the stream ends here; its checksum is compared on the way."""
        if self.read(1) or not self.stream.eof:
            raise damaged(self.path, "holds an array of another size than its header announces")


class _Reader:
    """The elements inside one array, which has `left` bytes more."""

    def __init__(self, source: Readable, left: int, order: str, path: Path) -> None:
        self.source, self.left, self.order, self.path = source, left, order, path

    def wrong(self, what: str) -> TorchcapsError:
        return damaged(self.path, f"has {what}")

    def numbers_of(self, content: bytes, code: str) -> tuple[int, ...]:
        return struct.unpack(f"{self.order}{len(content) // 4}{code}", content)

    def take(self, count: int) -> bytearray:
        if count > self.left:
            raise self.wrong(f"an element of {count} bytes where only {self.left} are left")
        self.left -= count
        return exactly(self.source, count, self.path)

    def skip(self, count: int) -> None:
        while count > 0:
            count -= len(self.take(min(CHUNK, count)))

    def tag(self) -> _Tag:
        head = bytes(self.take(8))
        kind, size = self.numbers_of(head, "I")
        if (small := kind >> 16) > 4:
            raise self.wrong(f"an element of {small} bytes that should fit into its tag")
        return _Tag(kind & 0xFFFF, small, head[4 : 4 + small]) if small else _Tag(kind, size, None)

    def body(self, tag: _Tag) -> bytes | bytearray:
        if tag.small is not None:
            return tag.small
        values = self.take(tag.size)
        # The last element of all is sometimes left unfilled.
        self.skip(min(-tag.size % 8, self.left))
        return values

    def short(self, kind: int, sizes: range, what: str) -> bytes:
        """Read a short element of this type and one of these sizes: flags, sizes or names."""
        tag = self.tag()
        if tag.kind != kind or tag.size > sizes[-1]:
            raise self.wrong(
                f"an element of type {tag.kind} with {tag.size} bytes where {what} belong"
            )
        content = bytes(self.body(tag))
        if len(content) not in sizes:
            raise self.wrong(f"{what} of {len(content)} bytes")
        return content

    def head(self) -> tuple[int, tuple[int, ...], str]:
        """Read flags and class, sizes, and name of an array."""
        flags = self.short(_UINT32, range(8, 9), "flags")
        sizes = self.short(_INT32, range(8, 4 * 8 + 1, 4), "sizes")
        name = self.short(_INT8, range(256 + 1), "names")
        return self.numbers_of(flags, "I")[0], self.numbers_of(sizes, "i"), name.decode("latin-1")

    def variable(self, request: _Request) -> bool:
        """Read a variable when it is requested, itself or a field of it."""
        flag, shape, name = self.head()
        is_asked = request.holds(name)
        if flag & 0xFF == _STRUCT and any(each.startswith(f"{name}.") for each in request.names):
            self.fields(name, shape, request)
        elif is_asked:
            request.found[name] = self.numbers(name, flag, shape)
        else:
            return False
        return True

    def fields(self, name: str, shape: tuple[int, ...], request: _Request) -> None:
        if self.left > MOST_BYTES:
            raise self.wrong(f"a struct {name} of {self.left} bytes (at most {MOST_BYTES})")
        if math.prod(shape) != 1:
            raise self.wrong(f"{_times(shape)} structs {name} where one belongs")
        (width,) = self.numbers_of(self.short(_INT32, range(4, 5), "lengths of names"), "i")
        names = self.short(_INT8, range(64 * 64 + 1), "names of fields")
        if not 0 < width <= 64 or len(names) % width:
            raise self.wrong(f"names of fields of {width} letters in {len(names)} bytes")
        for at in range(0, len(names), width):
            field = names[at : at + width].split(b"\0")[0].decode("latin-1")
            full = f"{name}.{field}"
            tag = self.tag()
            if tag.kind != _MATRIX or tag.small is not None:
                raise self.wrong(f"an element of type {tag.kind} where the field {field!r} belongs")
            if not request.holds(full):
                self.skip(tag.size)
                continue
            if tag.size > self.left:
                raise self.wrong(f"a field {field!r} longer than its struct")
            inner = _Reader(self.source, tag.size, self.order, self.path)
            self.left -= tag.size
            flag, sizes, _ = inner.head()
            request.found[full] = inner.numbers(full, flag, sizes)
            inner.skip(inner.left)

    def numbers(self, name: str, flag: int, shape: tuple[int, ...]) -> NDArray[np.number]:
        if flag & 0xFF not in _NUMERIC or flag & _COMPLEX:
            raise TorchcapsError(
                f"{self.path} holds {name} as text, cells or another kind, where plain numbers "
                f"belong; it is another file."
            )
        tag = self.tag()
        if tag.kind not in _STORED:
            raise self.wrong(f"values of the unknown type {tag.kind} in {name}")
        dtype = np.dtype(self.order + _STORED[tag.kind])
        claimed = math.prod(shape) * dtype.itemsize
        if min(shape) < 1 or claimed != tag.size or claimed > MOST_BYTES:
            raise self.wrong(
                f"{_times(shape)} values of {dtype.itemsize} bytes in {name}, but {tag.size} bytes "
                f"for them (at most {MOST_BYTES} are read)"
            )
        return np.frombuffer(self.body(tag), dtype).reshape(shape, order="F")


def _times(sizes: tuple[int | str, ...]) -> str:
    return " × ".join(map(str, sizes))


SVHN_FILES = "train_32x32.mat and test_32x32.mat"
AFFNIST_FILES = "test.mat or training_and_validation_batches"


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
    found = read_mat(path, ("X", "y"))
    # [row, column, channel, image], the row running fastest.
    images = _bytes_of(path, "X", found["X"], (32, 32, 3))
    labels = torch.from_numpy(known_numbers(path, "y", found["y"].reshape(-1), range(1, 11)) % 10)
    return ImageSet("svhn", torch.from_numpy(images.transpose(3, 2, 0, 1).copy()), labels, DIGITS)


@file_set("affnist", AFFNIST_FILES, ((1, 40, 40), 10, 1_600_000))
def affnist(root: str | os.PathLike[str], split: Literal["train", "test"]) -> ImageSet:
    """Read affNIST out of the folder that holds test.mat or test_batches, and those for training.

    A column of 1600 numbers is an image, row by row. For training: training_and_validation_batches,
    else training_batches; the single files `training_and_validation.mat` and `training.mat` of the
    centred version are read too. https://www.cs.toronto.edu/~tijmen/affNIST/

    Arguments:
        root: the folder of its files.
        split: "train" or "test".

    >>> affnist("data/affnist", "test").image_shape  # doctest: +SKIP
    (1, 40, 40)
    """
    stems = {"train": ("training_and_validation", "training"), "test": ("test",)}[split]
    names = [name for stem in stems for name in (f"{stem}.mat", f"{stem}_batches/1.mat")]
    path = file_in(
        path_of("root", root), names, folders=("affNIST", "affnist"), holds=AFFNIST_FILES
    )
    paths = _batches(path.parent) if path.name == "1.mat" else [path]
    images, labels = zip(*map(_affnist_batch, paths), strict=True)
    return ImageSet("affnist", torch.cat(images), torch.cat(labels), DIGITS)


def _affnist_batch(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    pixels, label = "affNISTdata.image", "affNISTdata.label_int"
    found = read_mat(path, (pixels, label))
    images = _bytes_of(path, pixels, found[pixels], (1600,))
    labels = known_numbers(path, label, found[label].reshape(-1), range(10))
    return (
        torch.from_numpy(np.ascontiguousarray(images.T)).reshape(-1, 1, 40, 40),
        torch.from_numpy(labels),
    )


def _batches(folder: Path) -> list[Path]:
    """List 1.mat, 2.mat and so on, in this order."""
    numbers = sorted(int(path.stem) for path in folder.glob("*.mat") if path.stem.isdecimal())
    if numbers != list(range(1, len(numbers) + 1)):
        missing = min(set(range(1, numbers[-1])) - set(numbers), default=0)
        raise TorchcapsError(
            f"{folder} holds batches up to {numbers[-1]}.mat, but lacks {missing}.mat; fetch it."
        )
    return [folder / f"{number}.mat" for number in numbers]


def _bytes_of(
    path: Path, name: str, values: NDArray[np.number], shape: tuple[int, ...]
) -> NDArray[np.uint8]:
    if values.dtype != np.uint8 or values.shape[:-1] != shape:
        raise TorchcapsError(
            f"{path} should hold {name} as {_times((*shape, 'n'))} bytes, but has "
            f"{values.dtype.name} of {_times(values.shape)}; it is another file."
        )
    return values.astype(np.uint8, copy=False)
