"""IDX files laid down by hand: MNIST and Fashion-MNIST."""

import gzip
import struct
from pathlib import Path


def idx(sizes: tuple[int, ...], body: bytes, *, kind: int = 8) -> bytes:
    return bytes([0, 0, kind, len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes) + body


BODY = bytes(range(24))
GOOD = idx((2, 3, 4), BODY)


def folder(root: Path, *, labels: bytes = b"\x07\x00") -> Path:
    """Two training images, plain and packed, and one test image."""
    (root / "train-images-idx3-ubyte").write_bytes(GOOD)
    packed = gzip.compress(idx((len(labels),), labels))
    (root / "train-labels-idx1-ubyte.gz").write_bytes(packed)
    (root / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx((1, 3, 4), BODY[12:])))
    (root / "t10k-labels-idx1-ubyte").write_bytes(idx((1,), b"\x09"))
    return root
