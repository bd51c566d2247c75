"""Archives of arrays laid down by hand, as numpy's format describes them."""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np


def npy(shape: str, content: bytes, *, code: str = "|u1", version: bytes = b"\1\0") -> bytes:
    """An array as numpy's format describes it: a mark, a line of text, the values."""
    text = f"{{'descr': '{code}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text = text.ljust(117) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + content


GOOD = {
    "images": npy("(2, 3, 4)", bytes(range(24))),
    "labels": npy("(2,)", struct.pack("<2q", 1, 0), code="<i8"),
}


def lay(path: Path, members: dict[str, bytes], *, packing: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


class Malice:
    def __reduce__(self):
        return eval, ("open('HERE', 'w')",)


def objects() -> bytes:
    content = io.BytesIO()
    np.save(content, np.array([Malice(), 1], object), allow_pickle=True)
    return content.getvalue()
