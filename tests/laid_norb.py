"""smallNORB files laid down by hand from the format's description."""

import struct

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
