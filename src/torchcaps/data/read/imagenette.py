"""Imagenette: ten classes of ImageNet, photographs of any size, as its second version is published.

imagenette2/train/n01440764/*.JPEG   9,469 pictures, a folder a class
imagenette2/val/n01440764/*.JPEG     3,925 pictures, which are the test

imagenette2-320 and imagenette2-160 are the same pictures, smaller.
https://github.com/fastai/imagenette. Needs pillow, the extra [data].

Ambiguities:
1. [renzulli2025] stretches pictures to 128 × 128 and does not say from which of the three sizes:
   here from the largest that is there.
"""

from dataclasses import replace
from os import PathLike
from typing import Literal

from torchcaps._paths import path_of
from torchcaps.data.image_set import ImageSet
from torchcaps.data.read.folder import Size, image_folder
from torchcaps.data.registry import file_set
from torchcaps.errors import TorchcapsError

FOLDERS = ("imagenette2", "imagenette2-320", "imagenette2-160")
TENCH = "n01440764"


# Of the size to which [renzulli2025] stretches them.
@file_set(
    "imagenette",
    "train and val, unpacked from its archive",
    ((3, 128, 128), 10, 9_469),
    any_size=True,
)
def imagenette(
    root: str | PathLike[str], split: Literal["train", "test"], *, size: Size | None = None
) -> ImageSet:
    """Read Imagenette out of the folder imagenette2, or the folder above it; the test is `val`.

    Arguments:
        root: the folder that holds train and val, or the one above it.
        split: "train" or "test".
        size: (height, width) to which every picture is stretched; [renzulli2025] takes (128, 128).
            It is needed where pictures differ in size, as the published ones do.

    >>> imagenette("data", "test", size=(128, 128))  # doctest: +SKIP
    """
    root = path_of("root", root)
    for folder in (root, *(root / name for name in FOLDERS)):
        # Other sets have a folder train, too.
        if (folder / "train" / TENCH).is_dir():
            found = image_folder(folder, split, size=size, channels=3)
            return replace(found, name="imagenette")
    raise TorchcapsError(
        f"neither {root} nor a folder {FOLDERS[0]} in it holds train/{TENCH}, the first of "
        f"its classes; unpack {FOLDERS[0]}.tgz, and point to the folder that it makes."
    )
