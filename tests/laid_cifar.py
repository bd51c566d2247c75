"""CIFAR files laid down by hand: binary, pickled, archived."""

import gzip
import hashlib
import struct
from pathlib import Path

import pytest

from torchcaps.data.read import cifar

# An image whose red, green and blue rise by one from row to row.
PICTURE = b"".join(bytes([plane + row] * 32) for plane in (0, 64, 128) for row in range(32))
BLACK = bytes(3072)

TEN_TRAIN = [f"data_batch_{number}" for number in range(1, 6)]


def short(text: bytes) -> bytes:
    """A short string as Python 2 pickles it."""
    return b"U" + bytes([len(text)]) + text


def array(shape: bytes, data: bytes, *, code: bytes = b"u1", order: bytes = b"|") -> bytes:
    """A numpy array of `shape` (pickled) as numpy 1 under Python 2 pickles it."""
    return (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x05cnumpy\nndarray\nq\x06K\x00\x85" + short(b"b")
        + b"\x87Rq\x07(K\x01" + shape + b"cnumpy\ndtype\nq\x08" + short(code) + b"K\x00K\x01\x87R"
        + b"(K\x03" + short(order) + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<i", len(data)) + data + b"tb"
    )  # fmt: skip


def batch(
    labels: list[int], rows: bytes, *, key: bytes = b"labels", data: bytes | None = None
) -> bytes:
    """One file of the Python version: a dict of a label's list and an array of rows."""
    shape = b"K" + bytes([len(labels)]) + b"M\x00\x0c\x86"
    listed = b"".join(b"K" + bytes([label]) for label in labels)
    return (
        b"\x80\x02}q\x01(" + short(b"batch_label") + b"q\x02" + short(b"testing batch 1 of 1")
        + short(key) + b"q\x03]q\x04(" + listed + b"e" + short(b"data")
        + (array(shape, rows) if data is None else data) + b"u."
    )  # fmt: skip


def member(name: str, content: bytes, *, kind: bytes = b"0", size: int | None = None) -> bytes:
    """A member of a tar archive: a header whose bytes add up, and its filled-up content."""
    size = len(content) if size is None else size
    head = name.encode().ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2
    head += b"%011o\0" % size + b"%011o\0" % 0 + b" " * 8 + kind
    head = (head.ljust(257, b"\0") + b"ustar\x0000").ljust(512, b"\0")
    head = head[:148] + b"%06o\0 " % sum(head) + head[156:]
    return head + content + bytes(-len(content) % 512)


def archive(path: Path, *members: bytes) -> Path:
    content = b"".join(members) + bytes(1024)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def binary_ten(folder: Path) -> Path:
    """CIFAR-10's binary version: two images in each batch for training, one for the test."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(TEN_TRAIN):
        rows = bytes([number]) + PICTURE + bytes([9 - number]) + BLACK
        (folder / f"{name}.bin").write_bytes(rows)
    (folder / "test_batch.bin").write_bytes(b"\x03" + PICTURE)
    return folder


def python_ten(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(TEN_TRAIN):
        (folder / name).write_bytes(batch([number, 9 - number], PICTURE + BLACK))
    (folder / "test_batch").write_bytes(batch([3], PICTURE))
    return folder


def published_are(monkeypatch: pytest.MonkeyPatch, *contents: bytes) -> None:
    """Have these be files of the Python version as it was published."""
    monkeypatch.setattr(cifar, "PYTHON_MD5", {hashlib.md5(each).hexdigest() for each in contents})
