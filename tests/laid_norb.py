"""smallNORB files laid down by hand from the format's description."""

import gzip
import struct
from pathlib import Path

TRAIN = "smallnorb-5x46789x9x18x6x2x96x96-training"
TEST = "smallnorb-5x01235x9x18x6x2x96x96-testing"
PAIR = 2 * 96 * 96


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


def dat(pairs: bytes) -> bytes:
    return bytes.fromhex("55 4c 3d 1e") + words(4, len(pairs) // PAIR, 2, 96, 96) + pairs


def cat(*labels: int) -> bytes:
    # One axis, but three sizes.
    return bytes.fromhex("54 4c 3d 1e") + words(1, len(labels), 1, 1) + words(*labels)


def info(*rows: tuple[int, int, int, int]) -> bytes:
    flat = [number for row in rows for number in row]
    return bytes.fromhex("54 4c 3d 1e") + words(2, len(rows), 4, 1) + words(*flat)


# The left camera sees rows that brighten downwards; the right one sees columns.
LEFT = b"".join(bytes([row] * 96) for row in range(96))
RIGHT = bytes(range(96)) * 96


FILES = {
    "dat": dat(LEFT + RIGHT + bytes(PAIR)),
    "cat": cat(4, 0),
    # Toy 8 from 45 degrees above, turned by 340; toy 4 from 30 degrees, not turned.
    "info": info((8, 3, 34, 5), (4, 0, 0, 0)),
}


def folder(root: Path, stem: str = TRAIN, *, packed: bool = False, **other: bytes) -> Path:
    """Lay the three files of a split, two pairs each."""
    for kind, content in (FILES | other).items():
        name = f"{stem}-{kind}.mat"
        if packed:
            (root / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (root / name).write_bytes(content)
    return root
