"""Files of SVHN and affNIST, and how these few images are the published ones for a while."""

import hashlib
import io
from dataclasses import replace
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
from scipy.io import savemat

from torchcaps.data import PUBLISHED
from torchcaps.data.registry import RemoteFile

# SVHN's X is [row, column, channel, image], the row running fastest: the first image brightens
# downwards in red and to the right in green; the second is black.
RED = bytes(range(32)) * 32
GREEN = b"".join(bytes([column] * 32) for column in range(32))
X = RED + GREEN + bytes(1024) + bytes(3072)


def mat(**variables: object) -> bytes:
    content = io.BytesIO()
    savemat(content, variables, do_compression=True)
    return content.getvalue()


def svhn_bytes(*, images: bytes = X, labels: bytes = b"\x0a\x07") -> bytes:
    pixels = np.frombuffer(images, np.uint8).reshape(32, 32, 3, len(labels), order="F")
    # Labels 10 and 7, numbers that MATLAB knows as doubles.
    return mat(X=pixels, y=np.array([*labels], float).reshape(-1, 1))


# affNIST keeps an image as one column of 1600 numbers, row by row.
COLUMN = b"".join(bytes([row] * 40) for row in range(40))


def affnist_bytes(*, labels: bytes = b"\x03\x09", images: bytes = COLUMN + bytes(1600)) -> bytes:
    n = len(labels)
    fields = {
        "affine_trans": np.arange(6.0 * n).reshape(6, n),
        "human_transform": np.array([["abc"] * n], object),
        "image": np.frombuffer(images, np.uint8).reshape(n, -1).T,
        "id": np.arange(n, dtype=float).reshape(1, n),
        "label_one_of_n": np.zeros((10, n)),
        "label_int": np.array([[*labels]], float),
    }
    return mat(affNISTdata=fields)


def zipped(path: Path, **members: bytes) -> Path:
    """`a__1` is 1.mat in the folder a."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name.replace('__', '/')}.mat", content)
    return path


def as_published(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """Have the files of both sets that lie below a folder be those that were published."""
    for name in ("svhn", "affnist"):
        files = tuple(_here(file, root) for file in PUBLISHED[name].files)
        monkeypatch.setitem(PUBLISHED, name, replace(PUBLISHED[name], files=files))


def _here(file: RemoteFile, root: Path) -> RemoteFile:
    for place in root.rglob(Path(file.path).name):
        return replace(file, sha256=hashlib.sha256(place.read_bytes()).hexdigest())
    return file
