"""What every network asks of the images it is given, and how it standardises them; where its
weights are, and how to put it in evaluation mode for a while."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, short
from torchcaps.layers.capsule_layer import first_weight
from torchcaps.ops.checks import check_tensor, is_finite, may_look


class Standardise(nn.Module):
    """Each channel less its mean, divided by its standard deviation.

    It is a part of the network: so whoever shows a network images shows them as they are, in
    [0, 1], and no file of weights is ever without the numbers that belong to it. Decoders draw
    images as they are, too.
    """

    mean: Tensor  # [c, 1, 1]
    std: Tensor  # [c, 1, 1]

    def __init__(self, channels: int, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        if not (_are_numbers(mean) and _are_numbers(std) and len(mean) == len(std) == channels):
            each = "one channel" if channels == 1 else f"each of {channels} channels"
            raise TorchcapsError(
                f"standardise must be (means, standard deviations), with a finite number for "
                f"{each} in both, but came as {short((mean, std))}."
            )
        if min(std) <= 0:
            raise TorchcapsError(
                f"standardise divides by the standard deviations, so they must be above 0, but "
                f"they came as {short(std)}."
            )
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32)[:, None, None])
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32)[:, None, None])

    def forward(self, image: Tensor) -> Tensor:
        return (image - self.mean) / self.std


def prepared(image: Tensor, expected: tuple[int, int, int], network: nn.Module) -> Tensor:
    """Give images that were checked, and standardised where the network does that."""
    check_images(image, expected, network)
    # Not `getattr`: to find that a module has no such attribute takes longer than an addition.
    standardise = network._modules.get("standardise")
    return image if standardise is None else standardise(image)


def check_images(image: Tensor, expected: tuple[int, int, int], network: nn.Module) -> None:
    """Make sure that `image` is [batch, *expected], finite, where the network's weights are and of
    their dtype."""
    check_tensor("image", image)
    if image.ndim != 4 or tuple(image.shape[1:]) != expected:
        raise TorchcapsError(
            f"this network takes images [batch, {', '.join(map(str, expected))}], but came "
            f"with shape {list(image.shape)}; {_mended(image.shape, expected)}."
        )
    if not image.is_floating_point():
        raise TorchcapsError(
            f"images must be floating point in [0, 1], but came as {image.dtype}; "
            f"for bytes use image.float() / 255."
        )
    weight = first_weight(network)
    if weight is None:
        device, dtype = image.device, image.dtype
    else:
        device, dtype = weight.device, weight.dtype
    # Weights on the meta device may be fetched layer by layer, as hooks that save memory do.
    if device != image.device and device.type != "meta":
        raise TorchcapsError(
            f"images and weights must be on one device, but are on {image.device} and {device}; "
            f"move the images with image.to({str(device)!r})."
        )
    if dtype != image.dtype and not torch.is_autocast_enabled(image.device.type):
        raise TorchcapsError(
            f"images and weights must share a dtype, but are {image.dtype} and {dtype}; "
            f"convert the images, or the network with model.to({image.dtype})."
        )
    if may_look(image) and not is_finite(image):
        raise TorchcapsError(
            "the images hold NaN or infinite values; every pixel must be finite, in [0, 1]: "
            "look for a division by zero in the preparation of the images."
        )


def device_of(network: nn.Module) -> torch.device:
    """Say where the weights of a network are; one without any is on the CPU."""
    weight = first_weight(network)
    return torch.device("cpu") if weight is None else weight.device


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put every part of a network in evaluation mode, and then as it was."""
    modes = {part: part.training for part in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def _mended(shape: torch.Size, expected: tuple[int, int, int]) -> str:
    channels, height, width = expected
    if tuple(shape[1:]) == (height, width, channels):
        return "channels come first: image.movedim(-1, 1)"
    if channels == 1 < shape[0] and tuple(shape[1:]) == (height, width):
        return "the axis of channels is missing: image.unsqueeze(1)"
    return (
        "a single image needs image.unsqueeze(0), another size needs create_model(..., "
        "image=(channels, height, width))"
    )


def _are_numbers(values: object) -> bool:
    return isinstance(values, tuple | list) and all(
        type(value) in (int, float) and math.isfinite(value) for value in values
    )
