"""What every network asks of the images it is given."""

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.ops.checks import check_tensor, is_finite, may_look


def check_images(image: Tensor, expected: tuple[int, int, int], network: nn.Module) -> None:
    """`image` must be [batch, *expected], finite, where the network's weights are and of their
    dtype."""
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
    weight = _a_weight(network)
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


def _a_weight(module: nn.Module) -> Tensor | None:
    """The first of `module.parameters()`, which make names on the way to it."""
    for weight in module._parameters.values():
        if weight is not None:
            return weight
    found = (_a_weight(part) for part in module.children())
    return next((weight for weight in found if weight is not None), None)
