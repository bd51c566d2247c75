"""Any torch Dataset of (image, label), read into memory once."""

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.data.image_set import MOST_BYTES, ImageSet
from torchcaps.data.read.arrays import as_image_set, tensor_of
from torchcaps.data.read.folder import pixels_of
from torchcaps.errors import TorchcapsError


def from_dataset(
    dataset: Any,
    class_names: Sequence[str] | None = None,
    *,
    name: str | None = None,
    groups: Sequence[object] | None = None,
) -> ImageSet:
    """Read labelled images out of a torch Dataset, or anything with a length and items (image,
    label).

    An image is a tensor or array ([h, w], [channels, h, w], or up to four channels last) of bytes
    or of floats in [0, 1], or a picture of pillow; all of one shape and type. Random transforms
    are drawn once, here.

    Arguments:
        dataset: it has a length and items (image, label).
        class_names: by default the `classes` that the data set itself names, or the labels'
            numbers.
        name: by default the name of the data set's class.
        groups: one an item, as in `from_arrays`.

    >>> from_dataset([(torch.rand(1, 8, 8), 0), (torch.rand(1, 8, 8), 1)], name="mine").labels
    tensor([0, 1])
    """
    name = name or type(dataset).__name__
    try:
        count = len(dataset)
    except TypeError:
        raise TorchcapsError(
            f"{name} has no length, so its images cannot be held in memory; give a data set with "
            f"__len__ and __getitem__."
        ) from None
    if count < 1:
        raise TorchcapsError(f"{name} is empty; it needs at least one (image, label).")
    images, label = _item(dataset, 0, name)
    if (filled := images.nbytes * count) > MOST_BYTES:
        raise TorchcapsError(
            f"{name} would fill {filled / 2**30:.0f} GiB of memory with {count} images of shape "
            f"{list(images.shape)}; make them smaller first."
        )
    held = torch.empty((count, *images.shape), dtype=images.dtype)
    held[0], labels = images, [label]
    for at in range(1, count):
        image, label = _item(dataset, at, name)
        if image.shape != images.shape or image.dtype != images.dtype:
            raise TorchcapsError(
                f"{name}: all images must be alike, but image 0 is {images.dtype} "
                f"{list(images.shape)} and image {at} is {image.dtype} {list(image.shape)}; bring "
                f"them to one size and type first."
            )
        held[at] = image
        labels.append(label)
    if class_names is None:
        class_names = getattr(dataset, "classes", None)
    return as_image_set(held, labels, class_names, name=name, groups=groups)


def _item(dataset: Any, at: int, name: str) -> tuple[Tensor, int]:
    item = dataset[at]
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise TorchcapsError(
            f"{name}: item {at} must be a pair (image, label), but is a {type(item).__name__}; "
            f"wrap the data set so that it gives pairs."
        )
    image, label = item
    if hasattr(image, "has_transparency_data"):
        image = pixels_of(image).copy()
    try:
        return tensor_of(image, "images", name), operator.index(label)
    except TypeError:
        raise TorchcapsError(
            f"{name}: label {at} must be one whole number, but is a {type(label).__name__}; give "
            f"the number of its class."
        ) from None
