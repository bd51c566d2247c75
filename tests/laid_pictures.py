"""Photographs laid down by hand."""

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
