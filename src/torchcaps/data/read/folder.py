"""A folder of pictures: one folder a class, named after it, with the class's pictures inside.

Needs pillow, the extra [data]. Pictures of every mode become 1 channel or 3; transparent places
become white, as on a page; photographs stand upright, as their camera noted.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchcaps._paths import path_of
from torchcaps.data.image_set import MOST_BYTES, ImageSet
from torchcaps.data.read.listed import FORMATS, TEST_SHARE, listed, tell_left_out
from torchcaps.data.registry import file_set
from torchcaps.data.shown.resize import check_size
from torchcaps.errors import TorchcapsError

if TYPE_CHECKING:
    from PIL import Image, ImageFile

Split = Literal["train", "val", "test"]
Size = tuple[int, int]

GREY = ("1", "L", "LA", "I;16", "I;16B", "I;16L")
_TURNED = (5, 6, 7, 8)
_WIDTH, _HEIGHT, _ORIENTATION = 0x0100, 0x0101, 0x0112


class SizesDiffer(TorchcapsError):
    """Pictures of several sizes, and one that they might have."""

    def __init__(self, found: str, size: Size, whose: str = ""):
        super().__init__(
            f"{found}; choose one size for all, (height, width): size= in Python, --image-size "
            f"{size[0]}x{size[1]}{whose} on the command line."
        )
        self.found = found


@file_set("folder", "a folder of pictures for each class", any_size=True)
def image_folder(
    root: str | PathLike[str],
    split: Split = "train",
    *,
    size: Size | None = None,
    channels: Literal[1, 3] | None = None,
    test_share: float = TEST_SHARE,
    seed: int = 0,
    groups: str | None = None,
    fold: tuple[int, int] | None = None,
) -> ImageSet:
    """Read the pictures root/class/*.png (jpg, bmp, webp, tiff, ppm), or root/split/class/*.png.

    Arguments:
        root: the folder that holds a folder a class, or a folder a split.
        split: the folder train, val or test below root; a missing test is read from val. Without
            such folders, test is a share of each class, train is the rest, and there is no val.
        size: (height, width) to which every picture is stretched; not needed when all have one
            size.
        channels: 1 or 3; by default 1 when all pictures are grey. Size and channels are those of
            all pictures below root, so that every split has the same.
        test_share: how much of a class is test, where no folder says it.
        seed: which pictures are drawn for the test. Whether a picture is drawn depends on the seed
            and on the names of the class's pictures, or of the groups, alone.
        groups: which pictures belong together, as those of one patient, so that the test takes all
            of a group or none: a regular expression, whose first bracket or else whole match in the
            path of a picture below root is its group; or FILE.csv:COLUMN, a table in root with that
            path, or the name where it is unique, in a column `file`.
        fold: (2, 5) is the second of five folds, for cross-validation: the test is a fifth of all
            pictures, or, where there is a folder train, of those in it, and train is the rest.

    >>> image_folder("pictures", "test", size=(48, 64))  # doctest: +SKIP
    """
    root = path_of("root", root)
    if size is not None:
        check_size(size)
    if channels not in (None, 1, 3):
        raise TorchcapsError(f"channels must be 1 or 3, got {channels}.")
    found = listed(root, split, test_share=test_share, seed=seed, groups=groups, fold=fold)
    tell_left_out(root, found.whole)
    height, width, channels = _shape(found.whole, size, channels)
    return ImageSet(
        root.resolve().name,
        stacked([root / file for file in found.files], channels, (height, width)),
        torch.tensor(found.labels),
        found.class_names,
        files=found.files,
        groups=found.groups,
    )


def stacked(files: Sequence[Path], channels: Literal[1, 3], size: Size | None = None) -> Tensor:
    """Read pictures as bytes [n, channels, h, w], stretched to `size` or all of one size."""
    if size is None:
        size = _common_size(files, [measure_picture(path)[0] for path in files])
    shape = (len(files), channels, *size)
    if math.prod(shape) > MOST_BYTES:
        raise TorchcapsError(
            f"{len(files)} pictures of {size[0]} × {size[1]} would fill "
            f"{math.prod(shape) / 2**30:.0f} GiB of memory; give a smaller size=(height, width)."
        )
    images = torch.empty(shape, dtype=torch.uint8)
    for at, path in enumerate(files):
        images[at] = torch.from_numpy(read_picture(path, channels, size))
    return images


def pixels_of(
    image: "Image.Image", channels: Literal[1, 3] | None = None, size: Size | None = None
) -> NDArray[np.uint8]:
    """Make a picture of any mode bytes [channels, h, w]; by default grey ones keep one channel."""
    from PIL import Image

    if channels is None:
        channels = 1 if image.mode in GREY else 3
    if image.mode in ("I", "F"):
        raise TorchcapsError(
            f"the picture has pixels of mode {image.mode}, which does not say what value white "
            f"has; save it as a PNG with 8 or 16 bits a pixel."
        )
    if image.mode.startswith("I;16"):
        # Pillow would cut off what is brighter than 255.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        page = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(page, image.convert("RGBA"))
    # Some modes can only become grey by way of colours.
    image = image if image.mode == "L" else image.convert("RGB")
    image = image.convert("L" if channels == 1 else "RGB")
    if size is not None and image.size != size[::-1]:
        image = image.resize(size[::-1], Image.Resampling.BILINEAR)
    pixels = np.array(image)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def _shape(
    files: list[Path], size: Size | None, channels: Literal[1, 3] | None
) -> tuple[int, int, Literal[1, 3]]:
    """Find height, width and channels of all these pictures, as far as they are not given."""
    if size is not None and channels is not None:
        return *size, channels
    measures = [measure_picture(path) for path in files]
    if channels is None:
        channels = 1 if all(mode in GREY for _, mode in measures) else 3
    return *(size or _common_size(files, [each for each, _ in measures])), channels


def _common_size(files: Sequence[Path], sizes: list[Size]) -> Size:
    for path, size in zip(files, sizes, strict=True):
        if size != sizes[0]:
            raise SizesDiffer(
                f"{files[0]} has {sizes[0][0]} × {sizes[0][1]} pixels and {path} has "
                f"{size[0]} × {size[1]}",
                sizes[0],
            )
    return sizes[0]


@contextmanager
def _opened(path: Path) -> Iterator["ImageFile.ImageFile"]:
    """Open a picture, of which only the header is read; its damage is told in one sentence."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise TorchcapsError(
            "pictures are read by pillow, which comes with the extra [data]: "
            "pip install 'torchcaps[data]'."
        ) from None
    # To open a pipe waits for somebody to write into it, for ever.
    if path.exists() and not path.is_file():
        raise TorchcapsError(
            f"{path} could not be read as a picture (it is no ordinary file, but a folder, a pipe "
            f"or a device); take it away."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=[FORMATS[path.suffix.lower()]]) as image:
                # More is left of a TIFF, or of a moving picture; a telephone's JPEG has a preview.
                if image.format != "MPO" and getattr(image, "is_animated", False):
                    raise TorchcapsError("it holds several pages; save each as a file of its own.")
                yield image
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise TorchcapsError(
            f"{path} claims more than {Image.MAX_IMAGE_PIXELS} pixels, the most that Pillow "
            f"reads; it may be made to fill the memory: make the picture smaller, or remove it."
        ) from None
    except TorchcapsError as error:
        raise TorchcapsError(f"{path}: {error}") from None
    except Exception as error:
        # What a damaged picture makes Pillow raise is not limited to any kind.
        why = str(error).replace(str(path), "it").replace("\n", " ")
        raise TorchcapsError(
            f"{path} could not be read as a picture ({why}); it is cut short, damaged or of "
            f"another format: save it again."
        ) from None


def measure_picture(path: Path) -> tuple[Size, str]:
    """Read (height, width) of a picture that stands upright, and Pillow's word for its mode."""
    with _opened(path) as image:
        (width, height), exif = image.size, image.getexif()
        if image.format == "TIFF":
            # As its pixels lie; newer versions of Pillow tell the size that it has upright.
            width, height = exif[_WIDTH], exif[_HEIGHT]
        if exif.get(_ORIENTATION) in _TURNED:
            width, height = height, width
        return (height, width), image.mode


def read_picture(path: Path, channels: Literal[1, 3], size: Size) -> NDArray[np.uint8]:
    """Read bytes [channels, h, w] of a picture, upright and stretched to (height, width)."""
    with _opened(path) as image:
        from PIL import ImageOps

        # Pillow maps a named file into memory by the size that a TIFF has upright, which shears it.
        image.filename = ""
        return pixels_of(ImageOps.exif_transpose(image), channels, size)
