"""What every network asks of the images it is given."""

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.ops.checks import may_look

__all__ = ["check_images"]


def check_images(image: Tensor, expected: tuple[int, int, int], weight: Tensor) -> None:
    """`image` must be [batch, *expected], finite, of the dtype of `weight`."""
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
    if image.dtype != weight.dtype and not torch.is_autocast_enabled(image.device.type):
        raise TorchcapsError(
            f"images and weights must share a dtype, but are {image.dtype} and {weight.dtype}; "
            f"convert the images, or the network with model.to({image.dtype})."
        )
    if may_look(image) and not bool(image.isfinite().all()):
        raise TorchcapsError(
            "the images hold NaN or infinite values; every pixel must be finite, in [0, 1]: "
            "look for a division by zero in the preparation of the images."
        )
