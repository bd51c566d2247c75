"""What every network asks of the images it is given."""

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.ops.checks import is_finite, may_look

__all__ = ["check_images"]


def check_images(image: Tensor, expected: tuple[int, int, int], network: nn.Module) -> None:
    """`image` must be [batch, *expected], finite, of the dtype of the network's weights."""
    if image.ndim != 4 or tuple(image.shape[1:]) != expected:
        raise TorchcapsError(
            f"this network takes images [batch, {', '.join(map(str, expected))}], but came "
            f"with shape {list(image.shape)}; a single image needs image.unsqueeze(0), another "
            f"size needs create_model(..., image=(channels, height, width))."
        )
    if not image.is_floating_point():
        raise TorchcapsError(
            f"images must be floating point in [0, 1], but came as {image.dtype}; "
            f"for bytes use image.float() / 255."
        )
    dtype = _dtype(network)
    if dtype not in (None, image.dtype) and not torch.is_autocast_enabled(image.device.type):
        raise TorchcapsError(
            f"images and weights must share a dtype, but are {image.dtype} and {dtype}; "
            f"convert the images, or the network with model.to({image.dtype})."
        )
    if may_look(image) and not is_finite(image):
        raise TorchcapsError(
            "the images hold NaN or infinite values; every pixel must be finite, in [0, 1]: "
            "look for a division by zero in the preparation of the images."
        )


def _dtype(module: nn.Module) -> torch.dtype | None:
    """Of the first of `module.parameters()`, which make names on the way to it."""
    for weight in module._parameters.values():
        if weight is not None:
            return weight.dtype
    found = (_dtype(part) for part in module.children())
    return next((dtype for dtype in found if dtype is not None), None)
