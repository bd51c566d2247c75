"""Pictures that somebody sends, and pictures that are sent back."""

import base64
import hashlib
import io
import math
import warnings
from collections import OrderedDict

import numpy as np
import torch
from torch import Tensor

from torchcaps._extras import needing
from torchcaps.data.read.folder import pixels_of
from torchcaps.data.shown.resize import resize
from torchcaps.errors import TorchcapsError

with needing("PIL", room="explore", extra="explore"):
    from PIL import Image, ImageOps

# What a browser draws and a camera writes. TIFF and others bring decoders that nobody needs here.
KINDS = ("PNG", "JPEG", "WEBP", "BMP")
MOST_BYTES, MOST_PIXELS = 8 << 20, 16_000_000
# A picture is decoded no larger than this: networks take smaller ones.
SIDE = 512
MOST_KEPT = 64


def decoded(content: bytes) -> Tensor:
    """Decode a picture to floats [3, h, w] in [0, 1], upright and at most 512 pixels wide."""
    if len(content) > MOST_BYTES:
        raise TorchcapsError(f"a picture may have {MOST_BYTES >> 20} MB; send a smaller one.")
    try:
        with warnings.catch_warnings():
            # Whatever Pillow doubts is no picture here.
            warnings.simplefilter("error")
            with Image.open(io.BytesIO(content), formats=KINDS) as image:
                if math.prod(image.size) > MOST_PIXELS:
                    raise _too_many("{:,} × {:,} pixels".format(*image.size))
                image.draft("RGB", (SIDE, SIDE))
                upright = ImageOps.exif_transpose(image)
                if upright.mode in ("1", "P"):
                    # Only colours can be made smaller smoothly.
                    upright = upright.convert("RGBA")
                upright.thumbnail((SIDE, SIDE))
                pixels = pixels_of(upright, 3)
    except TorchcapsError:
        raise
    except Image.DecompressionBombError:
        raise _too_many("more pixels than Pillow opens") from None
    except Exception as error:
        # What a damaged picture makes Pillow raise is not limited to any kind.
        raise TorchcapsError(
            f"this could not be read as a picture ({type(error).__name__}); it is cut short, "
            f"damaged or none of {', '.join(KINDS)}: save it as PNG."
        ) from None
    return torch.from_numpy(pixels.copy()).float() / 255


def _too_many(claims: str) -> TorchcapsError:
    return TorchcapsError(
        f"the picture claims {claims}, and at most {MOST_PIXELS:,} are decoded; make it smaller."
    )


class Pictures:
    """The last pictures that were sent, by their digests, in a size (height, width)."""

    def __init__(self, size: tuple[int, int]) -> None:
        self._size = size
        self._kept: OrderedDict[str, Tensor] = OrderedDict()

    def add(self, content: bytes) -> str:
        """Decode a picture and keep it as a link holds it, small and in bytes; its digest."""
        digest = hashlib.sha256(content).hexdigest()[:16]
        if digest not in self._kept:
            small = resize(decoded(content)[None], self._size)[0]
            self._kept[digest] = small.mul(255).round().div(255)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(digest)
        return digest

    def get(self, digest: str) -> Tensor:
        """Find a picture [3, *size] again."""
        if digest not in self._kept:
            raise TorchcapsError(
                "this picture is not held any more; drop or draw it again: the explorer keeps the "
                f"last {MOST_KEPT}."
            )
        return self._kept[digest]


def png(pixels: Tensor) -> str:
    """Write pixels [c, h, w] in [0, 1] as a data URI; of other channels than 1, 3 or 4 the mean."""
    if len(pixels) not in (1, 3, 4):
        pixels = pixels.mean(0, keepdim=True)
    values = (pixels.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    image = Image.fromarray(np.ascontiguousarray(values[..., 0] if len(pixels) == 1 else values))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
