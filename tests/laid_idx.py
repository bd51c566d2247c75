"""IDX files laid down by hand: MNIST and Fashion-MNIST."""

import struct


def idx(sizes: tuple[int, ...], body: bytes, *, kind: int = 8) -> bytes:
    return bytes([0, 0, kind, len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes) + body
