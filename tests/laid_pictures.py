"""Pictures laid down by hand, and folders of them."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def paint(path: Path, pixels: NDArray[np.uint8], **options: Any) -> None:
    """A JPEG of these pixels, grey [h, w] or in colours [h, w, 3], whatever its name ends with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, format="JPEG", **{"quality": 95, **options})


def patients(root: Path, count: int = 10) -> Path:
    """Pictures p000_0.png to p009_2.png, three of each patient, each patient of one class."""
    for number in range(count):
        folder = root / ("benign", "malignant")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        for picture in range(3):
            pixels = np.full((2, 3), 10 * number + picture, np.uint8)
            Image.fromarray(pixels).save(folder / f"p{number:03}_{picture}.png")
    return root


def chunk(kind: bytes, content: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + check


def png(width: int, height: int, rows: list[bytes], *, depth: int = 8, colour: int = 0) -> bytes:
    """A picture as the PNG specification lays it out; colour 0 is grey, 2 is red green blue."""
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


GREY = png(3, 2, [b"\x01\x02\x03", b"\x04\x05\x06"])


def animals(root: Path, count: int = 4, *, names: tuple[str, ...] = ("cat", "dog")) -> Path:
    """Grey pictures of 3 × 2 whose first pixel tells their class and number."""
    for label, name in enumerate(names):
        (root / name).mkdir(parents=True)
        for number in range(count):
            rows = [bytes([100 * label + number, 2, 3]), b"\x04\x05\x06"]
            (root / name / f"{number}.png").write_bytes(png(3, 2, rows))
    return root


def pages(path: Path) -> None:
    """Two pictures in one file."""
    first, second = (Image.new("RGB", (3, 2), colour) for colour in ("red", "blue"))
    first.save(path, save_all=True, append_images=[second])


WNIDS = ("n02", "n01", "n03")
# Two of the classes mean the same word.
WORDS = "n01\tgoldfish, Carassius auratus\nn02\tcrane\nn03\tcrane\nn04\ta class of ImageNet alone\n"
VAL = "val_0.JPEG\tn03\t0\t0\t5\t5\nval_1.JPEG\tn02\t1\t1\t5\t5\n"


def tiny(root: Path) -> Path:
    """Tiny ImageNet with three classes of two pictures, and two to be tested on."""
    for number, wnid in enumerate(WNIDS):
        for k in range(2):
            path = root / "train" / wnid / "images" / f"{wnid}_{k}.JPEG"
            level = np.full((6, 6, 3)[: 2 if k else 3], 100 * number + 20 * k, np.uint8)
            paint(path, level)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("not read")
    for k in range(2):
        paint(root / "val" / "images" / f"val_{k}.JPEG", np.full((6, 6, 3), 10 + 100 * k, np.uint8))
    paint(root / "test" / "images" / "test_0.JPEG", np.full((6, 6, 3), 255, np.uint8))
    (root / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    (root / "words.txt").write_text(WORDS)
    (root / "val" / "val_annotations.txt").write_text(VAL)
    return root
