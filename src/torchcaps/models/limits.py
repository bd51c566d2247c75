"""Networks that would be too large are refused before anything is made of them.

Where every child has a matrix of its own for every parent, weights grow with the pixels times the
classes. LARGEST is 4 GiB for one tensor, with its gradient and what Adam keeps 16 GiB: a hundred
times the largest of any paper here, and mostly an image size that was not thought through. Who
means it makes the layers: they have no limit.
"""

import bisect
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from torchcaps.errors import TorchcapsError, short
from torchcaps.models.preset import MODELS

LARGEST = 4 << 30
# Of any whole number that a network is made with: a side of an image, its classes, an option.
MOST = 10**6
MOST_PIXELS = 1 << 31
MOST_LAYERS = 100
REMEDIES = 3
# Windows with a stride and one matrix for all; a convolution over the whole map.
FOR_LARGE_IMAGES = ("rem_effconv", "efficient_capsnet")

# A network of its image, its class count and its options.
Make = Callable[..., nn.Module]


def check_sides(image: tuple[int, int, int], n_classes: int) -> None:
    """Refuse what is no size of an image, and no number of classes."""
    if not isinstance(image, tuple | list) or len(image) != 3 or not all(map(_is_count, image)):
        raise TorchcapsError(
            f"image must be (channels, height, width), three whole numbers from 1 to {MOST:,}, but "
            f"came as {short(image)}; a sequence has one row, the slices of a volume are channels."
        )
    if image[0] == image[1] and (doubt := doubt_order(image)):
        raise TorchcapsError(doubt)
    if math.prod(image) > MOST_PIXELS:
        raise TorchcapsError(
            f"an image of {'×'.join(map(str, image))} has more than {MOST_PIXELS:,} numbers, the "
            f"most that a network is made for; is its order (channels, height, width)?"
        )
    if not _is_count(n_classes):
        raise TorchcapsError(
            f"n_classes must be a whole number from 1 to {MOST:,}, but came as {short(n_classes)}."
        )


def check_layers(n_layers: int) -> None:
    """Refuse fewer layers of capsules than two, and very many, which are made one by one."""
    if not 2 <= n_layers <= MOST_LAYERS:
        raise TorchcapsError(
            f"n_layers counts the primary and the class capsules, so it is 2 to {MOST_LAYERS}, but "
            f"came as {n_layers}."
        )


def doubt_order(image: tuple[int, int, int]) -> str:
    """Write the sentence about an image that seems to have its channels last, as pictures of other
    libraries do; of others nothing. A signal of many channels, one wide, looks the same."""
    height, width, channels = image
    if channels not in (1, 3) or height <= 4:
        return ""
    return (
        f"image is (channels, height, width), but came as {tuple(image)}; did you mean "
        f"{(channels, height, width)}?"
    )


def check_weights(name: str, make: Make, **chosen: Any) -> None:
    """Refuse a network with a weight beyond `LARGEST`, or beyond the memory of the machine, in a
    sentence with up to three remedies that were tried."""
    if torch.get_default_device().type == "meta":
        return  # Nothing is allocated, so nothing is refused.
    most = min(LARGEST, _memory())
    weight, tensor = heaviest(_drawn(make, chosen))
    if tensor.nbytes <= most:
        return
    remedies = _remedies(name, make, chosen, most)
    shape = "×".join(map(str, tensor.shape))
    image = "×".join(map(str, chosen["image"]))
    does = "; ".join(f"({number}) {each}" for number, each in enumerate(remedies, 1))
    raise TorchcapsError(
        f"{name} for images of {image} and {chosen['n_classes']} classes would need {weight} of "
        f"{shape} numbers, {in_bytes(tensor.nbytes)}, four times as much in training, and "
        f"{in_bytes(most)} is the most that is made"
        + (
            f"; each of these helps: {does}."
            if does
            else "; take fewer channels, pixels or classes."
        )
    )


class _Undrawn(TorchFunctionMode):
    """Draws no normal numbers on the meta device, for which torch would import its compiler."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") == "normal_":
            tensor: Tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **kwargs)


@contextmanager
def without_memory() -> Iterator[None]:
    """Make networks on the meta device."""
    with torch.device("meta"), _Undrawn():
        yield


def heaviest(network: nn.Module) -> tuple[str, torch.Tensor]:
    """Give the largest parameter and its name."""
    return max(network.named_parameters(), key=lambda named: named[1].nbytes)


def in_bytes(size: float) -> str:
    """Give a size as people say it.

    >>> in_bytes(35_441_868_800)
    '35.4 GB'
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:,.{0 if size >= 100 * scale else 1}f} {unit}"
    return f"{size:.0f} bytes"


def kernel_that_fits(make: Make, chosen: dict[str, Any], kernel: int) -> int | None:
    """Give the largest odd kernel below `kernel` that lets the image pass, if there is one."""
    odd = range(1, kernel, 2)
    # What is smaller than a kernel that fits, fits.
    n_fitting = bisect.bisect_left(
        odd, True, key=lambda each: not _passes(make, chosen | {"kernel": each})
    )
    return odd[n_fitting - 1] if n_fitting else None


def made(make: Make, chosen: dict[str, Any]) -> nn.Module:
    """Give a network, or a sentence about one with more weights than can be counted."""
    try:
        return make(**chosen)
    except (RuntimeError, TypeError, OverflowError) as error:
        if "overflow" not in str(error).lower():
            raise
        image = "×".join(map(str, chosen["image"]))
        raise TorchcapsError(
            f"a network for images of {image} and {chosen['n_classes']} classes, with these "
            f"options, would need more memory than any machine has; take smaller images, fewer "
            f"classes or smaller options."
        ) from None


def _remedies(name: str, make: Make, chosen: dict[str, Any], most: int) -> list[str]:
    def fits(make: Make, **given: Any) -> bool:
        try:
            return heaviest(_drawn(make, given))[1].nbytes <= most
        except (TorchcapsError, TypeError):
            return False  # Too small an image, or no such option.

    # Others that a network takes go to its routing.
    options, found = inspect.signature(make).parameters, []
    if "sharing" in options and fits(make, **chosen | {"sharing": "type"}):
        found.append('sharing="type", one matrix for all positions of a capsule type')
    if "decoder" in options and fits(make, **chosen | {"decoder": False}):
        found.append("decoder=False")
    _, height, width = chosen["image"]

    def is_too_large(side: int) -> bool:
        smaller = chosen | {"image": _scaled(chosen["image"], side)}
        # Below what passes through the convolutions nothing fits; a larger image may.
        return not fits(make, **smaller) and _passes(make, smaller)

    sides = range(2, max(height, width))
    side = 1 + bisect.bisect_left(sides, True, key=is_too_large)
    image = _scaled(chosen["image"], side)
    if fits(make, **chosen | {"image": image}):
        found.append(f"images of {'×'.join(map(str, image))} or smaller")
    plain = {"image": chosen["image"], "n_classes": chosen["n_classes"]}
    for other in FOR_LARGE_IMAGES:
        if other != name and fits(MODELS[other].build, **plain):
            found.append(f"{other}, made for large images")
    return found[:REMEDIES]


def _scaled(image: tuple[int, int, int], side: int) -> tuple[int, int, int]:
    """Give the image with `side` pixels along the longer side."""
    channels, height, width = image
    longer = max(height, width)
    return channels, max(1, height * side // longer), max(1, width * side // longer)


def _passes(make: Make, chosen: dict[str, Any]) -> bool:
    try:
        _drawn(make, chosen)
    except TorchcapsError:
        return False
    return True


def _drawn(make: Make, chosen: dict[str, Any]) -> nn.Module:
    """Give the network without its memory."""
    with without_memory():
        return made(make, chosen)


def _memory() -> int:
    """Return the memory of this machine; no limit where the machine does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def _is_count(value: object) -> bool:
    return type(value) is int and 1 <= value <= MOST
