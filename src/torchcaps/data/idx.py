"""The IDX format of MNIST and Fashion-MNIST, gzipped or not.

A file is a big-endian header, then bytes: two zeros, the type (8 = unsigned byte), the number of
axes, each axis as a 32-bit number, and the values. http://yann.lecun.com/exdb/mnist/
"""

import gzip
import math
import os
import struct
import zlib
from pathlib import Path
from typing import IO, Literal, cast

import torch
from torch import Tensor

from torchcaps.data.image_set import ImageSet
from torchcaps.errors import TorchcapsError

__all__ = ["mnist", "read_idx"]

# Larger than any data set in this format; a header beyond it is damaged, and is not believed.
MOST_VALUES = 1 << 30


def read_idx(path: str | os.PathLike[str], *, axes: int) -> Tensor:
    """The unsigned bytes of one IDX file with the given number of axes."""
    path = Path(path)
    if not path.is_file():
        raise TorchcapsError(f"there is no file {path}; is the data folder right?")
    open_bytes = gzip.open if path.suffix == ".gz" else open
    try:
        with cast(IO[bytes], open_bytes(path, "rb")) as file:
            header = file.read(4)
            if len(header) < 4 or header[:3] != b"\x00\x00\x08" or header[3] != axes:
                raise TorchcapsError(
                    f"{path} should begin with 00 00 08 {axes:02x}, the mark of an IDX file of "
                    f"bytes with {axes} axes, but begins with {header.hex(' ') or 'nothing'}; is "
                    f"it images where labels belong, or another format?"
                )
            sizes = struct.unpack(f">{axes}I", _exactly(file, 4 * axes, path))
            count = math.prod(sizes)
            if not 0 < count <= MOST_VALUES:
                raise TorchcapsError(
                    f"{path} claims to hold {' × '.join(map(str, sizes))} values; known sets of "
                    f"images hold 1 to {MOST_VALUES}: its header is damaged."
                )
            values = _exactly(file, count, path)
            if file.read(1):
                raise TorchcapsError(
                    f"{path} holds more than the {count} bytes that its header announces; it is "
                    f"damaged: fetch it again."
                )
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TorchcapsError(
            f"{path} could not be unpacked ({error}); it is cut short or damaged: fetch it again."
        ) from None
    return torch.frombuffer(bytearray(values), dtype=torch.uint8).reshape(sizes)


def mnist(root: str | os.PathLike[str], split: Literal["train", "test"]) -> ImageSet:
    """MNIST or Fashion-MNIST out of the folder that holds their four files, as published."""
    stem = {"train": "train", "test": "t10k"}[split]
    images = read_idx(_either(Path(root), f"{stem}-images-idx3-ubyte"), axes=3)
    labels = read_idx(_either(Path(root), f"{stem}-labels-idx1-ubyte"), axes=1)
    return ImageSet("mnist", images.unsqueeze(1), labels.long(), tuple("0123456789"))


def _either(root: Path, name: str) -> Path:
    plain, packed = root / name, root / f"{name}.gz"
    if not plain.is_file() and not packed.is_file():
        raise TorchcapsError(
            f"neither {packed.name} nor {plain.name} is in {root}; point to the folder that holds "
            f"the four files of MNIST."
        )
    return plain if plain.is_file() else packed


def _exactly(file: IO[bytes], count: int, path: Path) -> bytes:
    values = file.read(count)
    if len(values) < count:
        raise TorchcapsError(
            f"{path} ends after {len(values)} of the {count} bytes that its header announces; it "
            f"is cut short: fetch it again."
        )
    return values
