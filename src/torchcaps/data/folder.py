"""A folder of pictures: one folder a class, named after it, with the class's pictures inside.

Needs pillow, the extra [data]. Pictures of every mode become 1 channel or 3; transparent places
become white, as on a page; photographs stand upright, as their camera noted.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchcaps._paths import path_of
from torchcaps.data.arrays import MOST_BYTES
from torchcaps.data.groups import check_folders_apart, groups_of_files
from torchcaps.data.image_set import ImageSet
from torchcaps.data.parting import Files, drawn
from torchcaps.data.resize import check_size
from torchcaps.errors import TorchcapsError, nearest, short

if TYPE_CHECKING:
    from PIL import Image, ImageFile

__all__ = [
    "FORMATS",
    "GREY",
    "Size",
    "SizesDiffer",
    "image_folder",
    "inside",
    "measure_picture",
    "pixels_of",
    "read_picture",
    "stacked",
]

Split = Literal["train", "val", "test"]
Size = tuple[int, int]

SPLITS = ("train", "val", "test")
# Pillow knows many more formats; some of them start other programs to be read.
FORMATS = {
    **{".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".webp": "WEBP"},
    **{".tif": "TIFF", ".tiff": "TIFF", ".ppm": "PPM", ".pgm": "PPM"},
}
# Pictures as well, which nobody may miss unawares.
UNREAD = (".avif", ".gif", ".heic", ".heif", ".jfif", ".jp2", ".jpe", ".jxl", ".pbm", ".tga")
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


def image_folder(
    root: str | PathLike[str],
    split: Split = "train",
    *,
    size: Size | None = None,
    channels: Literal[1, 3] | None = None,
    test_share: float = 0.2,
    seed: int = 0,
    groups: str | None = None,
) -> ImageSet:
    """The pictures root/class/*.png (jpg, bmp, webp, tiff, ppm), or root/split/class/*.png.

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

    >>> image_folder("pictures", "test", size=(48, 64))  # doctest: +SKIP
    """
    root = path_of("root", root)
    if size is not None:
        check_size(size)
    if channels not in (None, 1, 3):
        raise TorchcapsError(f"channels must be 1 or 3, got {channels}.")
    if not isinstance(test_share, Real) or not 0 < test_share < 1:
        raise TorchcapsError(f"test_share must lie between 0 and 1, got {short(test_share)}.")
    class_names, files, is_drawn = _files(root, split)
    whole = _whole(root)
    _tell_left_out(root, whole)
    name, group_of = root.resolve().name, None
    if groups is not None:
        group_of = groups_of_files(root, [_below(root, path) for path in whole], groups)
        check_folders_apart(name, {} if is_drawn else group_of)
    if is_drawn:
        of_files = group_of and [group_of[_below(root, path)] for path, _ in files]
        files = drawn(name, class_names, files, of_files, test_share, seed, split)
    height, width, channels = _shape(whole, size, channels)
    images = stacked([path for path, _ in files], channels, (height, width))
    labels = torch.tensor([label for _, label in files])
    names = tuple(_below(root, path) for path, _ in files)
    named = None if group_of is None else tuple(group_of[each] for each in names)
    return ImageSet(name, images, labels, class_names, files=names, groups=named)


def _below(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def stacked(files: Sequence[Path], channels: Literal[1, 3], size: Size | None = None) -> Tensor:
    """Pictures as bytes [n, channels, height, width], stretched to `size` or all of one size."""
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
    """A picture of any mode as bytes [channels, h, w]; by default grey ones keep one channel."""
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


def _files(root: Path, split: str) -> tuple[tuple[str, ...], Files, bool]:
    """The classes, and every picture of the split with its class; or, where no folder says what is
    the test, all of them, of which it must be drawn."""
    if split not in SPLITS:
        raise TorchcapsError(f"split={split!r} is unknown; {nearest(split, SPLITS)}.")
    if not root.is_dir():
        raise TorchcapsError(
            f"there is no folder {root}; point to the one that holds a folder of pictures for each "
            f"class."
        )
    home = root.resolve()
    parts = {path.name: path for path in _folders(root, home)}
    is_drawn = not _has_splits(parts, home)
    if not is_drawn:
        part = parts.get(split, parts.get("val") if split == "test" else None)
        if part is None:
            raise TorchcapsError(
                f"{root} has the folders {', '.join(sorted(parts))} but no {split}; add it, or "
                f"take the folders of classes out of train for a share of each."
            )
        class_names = _classes(parts["train"], home)
        for name in (path.name for path in _folders(part, home)):
            if name not in class_names:
                raise TorchcapsError(
                    f"{part} has a class {name!r}, which {parts['train']} lacks; "
                    f"{nearest(name, class_names)}."
                )
        chosen = [_pictures(part / name, home) for name in class_names if (part / name).is_dir()]
        _check_has_classes(part, chosen)
    elif split == "val":
        raise TorchcapsError(
            f"{root} has no folder val to read; make folders train and val in it, or hold out "
            f"some of the training images: images.hold_out()."
        )
    else:
        class_names = _classes(root, home)
        chosen = [_pictures(root / name, home) for name in class_names]
    files = [(path, class_names.index(path.parent.name)) for each in chosen for path in each]
    return class_names, files, is_drawn


def _whole(root: Path) -> list[Path]:
    """Every picture of every split."""
    home = root.resolve()
    classes = _folders(root, home)
    if _has_splits({path.name: path for path in classes}, home):
        for part in classes:
            _check_has_classes(part, _folders(part, home))
        classes = [each for part in classes for each in _folders(part, home)]
    return [path for each in classes for path in _pictures(each, home)]


def _check_has_classes(part: Path, classes: Sequence[object]) -> None:
    if not classes:
        raise TorchcapsError(
            f"{part} holds no folder of a class, and of a picture without a class nothing can be "
            f"learnt or judged; sort its pictures into folders of classes, or take it away."
        )


def _has_splits(parts: dict[str, Path], home: Path) -> bool:
    """Whether these folders are splits, not classes."""
    return "train" in parts and set(parts) <= set(SPLITS) and bool(_folders(parts["train"], home))


def _shape(
    files: list[Path], size: Size | None, channels: Literal[1, 3] | None
) -> tuple[int, int, Literal[1, 3]]:
    """Height, width and channels of all these pictures; only what is not given is looked up."""
    if size is not None and channels is not None:
        return *size, channels
    measures = [measure_picture(path) for path in files]
    if channels is None:
        channels = 1 if all(mode in GREY for _, mode in measures) else 3
    return *(size or _common_size(files, [each for each, _ in measures])), channels


def _folders(folder: Path, home: Path) -> list[Path]:
    return [path for path in inside(folder, home) if path.is_dir()]


def _classes(folder: Path, home: Path) -> tuple[str, ...]:
    names = tuple(path.name for path in _folders(folder, home))
    if len(names) < 2:
        present = f"only one, {names[0]!r}" if names else "none"
        raise TorchcapsError(
            f"{folder} should hold a folder of pictures for each of two or more classes, but holds "
            f"{present}; point to the folder above the classes."
        )
    return names


def _pictures(folder: Path, home: Path) -> list[Path]:
    found = [path for path in inside(folder, home) if path.suffix.lower() in FORMATS]
    if not found:
        is_split = any(
            path.suffix.lower() in FORMATS
            for inner in _folders(folder, home)
            for path in inside(inner, home)
        )
        others = sum(path.suffix.lower() in UNREAD for path in inside(folder, home))
        raise TorchcapsError(
            f"{folder} holds no pictures ({' '.join(FORMATS)}); "
            + (
                f"its folders do: is it a split? Splits are called {', '.join(SPLITS)}."
                if is_split
                else f"it holds {others} of formats that are not read: save them as .png."
                if others
                else "fill it, or take it away."
            )
        )
    return found


def _tell_left_out(root: Path, whole: list[Path]) -> None:
    """Warn of pictures that lie with these and are not among them."""
    classes = sorted({path.parent for path in whole})
    beside = [path for each in classes for path in sorted(each.iterdir())]
    within = [inner for each in beside if each.is_dir() for inner in sorted(each.iterdir())]
    unread = [path for path in beside if path.suffix.lower() in UNREAD]
    deeper = [path for path in within if path.suffix.lower() in (*FORMATS, *UNREAD)]
    for left_out, why in (
        (unread, "are of formats that are not read; save them as .png"),
        (deeper, "lie in a folder inside that of their class; move them up into it"),
    ):
        if left_out := [path for path in left_out if not path.name.startswith(".")]:
            warnings.warn(
                f"left out of {root}: {len(left_out)} pictures ({left_out[0]} is the first), "
                f"which {why}, or take them away.",
                stacklevel=3,
            )


def inside(folder: Path, home: Path) -> list[Path]:
    """What lies in a folder, by name and without hidden things; no link may lead out of home."""
    found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for path in found:
        if path.is_symlink() and not _stays(path, home):
            raise TorchcapsError(
                f"{path} is a link that leaves {home} or goes round in a ring; copy what it points "
                f"to, or take it away."
            )
    return found


def _stays(link: Path, home: Path) -> bool:
    try:
        return link.resolve().is_relative_to(home)
    except (OSError, RuntimeError):
        # A ring: what is raised depends on the version of Python.
        return False


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
    """A picture whose header alone has been read; its damage is told in one sentence."""
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
    """(height, width) of a picture that stands upright, and Pillow's word for its mode."""
    with _opened(path) as image:
        (width, height), exif = image.size, image.getexif()
        if image.format == "TIFF":
            # As its pixels lie; newer versions of Pillow tell the size that it has upright.
            width, height = exif[_WIDTH], exif[_HEIGHT]
        if exif.get(_ORIENTATION) in _TURNED:
            width, height = height, width
        return (height, width), image.mode


def read_picture(path: Path, channels: Literal[1, 3], size: Size) -> NDArray[np.uint8]:
    """Bytes [channels, h, w] of a picture, upright and stretched to (height, width)."""
    with _opened(path) as image:
        from PIL import ImageOps

        # Pillow maps a named file into memory by the size that a TIFF has upright, which shears it.
        image.filename = ""
        return pixels_of(ImageOps.exif_transpose(image), channels, size)
