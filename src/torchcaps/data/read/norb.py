"""smallNORB: toys seen by two cameras, from 162 directions, in 6 lightings.

Three files a split, in a little-endian format of their own, gzipped or not: a mark that tells the
type, the number of axes, their sizes (at least three, the rest filled up with ones), the values
with the last axis running fastest. https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/
"""

import math
import os
import struct
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from torchcaps._paths import path_of
from torchcaps.data.image_set import ImageSet
from torchcaps.data.read.packed import (
    exactly,
    file_in,
    known_numbers,
    opened,
    plain_or_gzipped,
    rest,
)
from torchcaps.data.registry import file_set
from torchcaps.errors import TorchcapsError

CLASSES = ("animal", "human", "airplane", "truck", "car")
STEMS = {
    "train": "smallnorb-5x46789x9x18x6x2x96x96-training",
    "test": "smallnorb-5x01235x9x18x6x2x96x96-testing",
}
# The real files hold 24,300 pairs; four times as many are not believed.
MOST_VALUES = 4 * 24_300 * 2 * 96 * 96

_BYTES, _INTEGERS = 0x1E3D4C55, 0x1E3D4C54
_STORED = {_BYTES: "<u1", _INTEGERS: "<i4"}

# Each fact's name, how many values it has as written, and what a step of it means.
_FACTS = (
    ("instance", range(10), lambda step: step),
    ("elevation", range(9), lambda step: 30 + 5 * step),
    ("azimuth", range(0, 36, 2), lambda step: 10 * step),
    ("lighting", range(6), lambda step: step),
)


@file_set("smallnorb", "its -dat.mat, -cat.mat and -info.mat files")
def smallnorb(root: str | os.PathLike[str], split: Literal["train", "test"]) -> ImageSet:
    """Read smallNORB out of the folder that holds its six files, as published.

    The two cameras are the two channels. `facts` holds the toy's `instance`, the camera's
    `elevation` (30 to 70) and `azimuth` (0 to 340) in degrees, and the `lighting`.

    Arguments:
        root: the folder of its files.
        split: "train" or "test".

    >>> smallnorb("data", "test").image_shape  # doctest: +SKIP
    (2, 96, 96)
    """
    folders = ("smallNORB", "smallnorb")
    holds = "the -dat.mat, -cat.mat and -info.mat files of smallNORB"
    of_images, of_labels, of_facts = (
        plain_or_gzipped(f"{STEMS[split]}-{kind}.mat") for kind in ("dat", "cat", "info")
    )
    pictures = file_in(path_of("root", root), of_images, folders=folders, holds=holds)
    answers = file_in(pictures.parent, of_labels, holds=holds)
    info = file_in(pictures.parent, of_facts, holds=holds)
    images = torch.from_numpy(_matrix(pictures, _BYTES, (2, 96, 96)))
    labels = torch.from_numpy(_matrix(answers, _INTEGERS, ())).long()
    steps = _matrix(info, _INTEGERS, (4,)).T
    facts = {
        name: torch.from_numpy(meaning(known_numbers(info, name, each, known)))
        for (name, known, meaning), each in zip(_FACTS, steps, strict=True)
    }
    return ImageSet("smallnorb", images, labels, CLASSES, facts=facts)


def _matrix(path: Path, mark: int, shape: tuple[int, ...]) -> NDArray[np.integer]:
    """Read one file's values [n, *shape], writable."""
    axes = 1 + len(shape)
    with opened(path) as file:
        begin = file.read(4)
        if begin != struct.pack("<I", mark):
            raise TorchcapsError(
                f"{path} should begin with {struct.pack('<I', mark).hex(' ')}, the mark of a "
                f"binary matrix of {'bytes' if mark == _BYTES else 'integers'}, but begins with "
                f"{begin.hex(' ') or 'nothing'}; is it another of the three files, or a MATLAB "
                f"file?"
            )
        (stored,) = struct.unpack("<i", exactly(file, 4, path))
        if stored != axes:
            raise TorchcapsError(
                f"{path} should have {axes} axes, but its header says {stored}; it is another "
                f"file, or damaged: fetch it again."
            )
        sizes = struct.unpack(f"<{max(axes, 3)}i", exactly(file, 4 * max(axes, 3), path))
        known = (*shape, *(1,) * (3 - axes))
        values = math.prod(sizes)
        if sizes[0] < 1 or sizes[1:] != known or values > MOST_VALUES:
            raise TorchcapsError(
                f"{path} should have sizes {' × '.join(map(str, ('n', *known)))} and at most "
                f"{MOST_VALUES} values, but claims {' × '.join(map(str, sizes))}; it is another "
                f"file, or damaged: fetch it again."
            )
        dtype = np.dtype(_STORED[mark])
        content = rest(file, values * dtype.itemsize, path)
    return np.frombuffer(content, dtype).reshape(sizes[:axes])
