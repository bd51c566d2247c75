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
