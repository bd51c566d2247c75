"""Backbones: the plain convolutions below the capsules."""

import torch
from torch import nn

from torchcaps.errors import TorchcapsError

__all__ = ["efficient_backbone", "feature_shape", "sabour_backbone"]


def sabour_backbone(channels: int) -> nn.Sequential:
    """One 9×9 convolution with 256 channels and a ReLU [gu2021] §3, from [sabour2017]."""
    return nn.Sequential(nn.Conv2d(channels, 256, 9), nn.ReLU())


def efficient_backbone(channels: int) -> nn.Sequential:
    """Four convolutions with ReLU and batch normalisation, as Efficient-CapsNet [mazzia2021]."""
    widths, kernels, strides = (channels, 32, 64, 64, 128), (5, 3, 3, 3), (1, 1, 1, 2)
    blocks: list[nn.Module] = []
    for c_in, c_out, kernel, stride in zip(widths[:-1], widths[1:], kernels, strides, strict=True):
        blocks += [nn.Conv2d(c_in, c_out, kernel, stride), nn.ReLU(), nn.BatchNorm2d(c_out)]
    return nn.Sequential(*blocks)


def feature_shape(module: nn.Module, image: tuple[int, int, int]) -> tuple[int, int, int]:
    """The (channels, height, width) that `module` makes of an image, without computing anything."""
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    shadow = {name: tensor.detach().to("meta") for name, tensor in state.items()}
    try:
        # Two images, because batch normalisation refuses to train on a single value.
        features = torch.func.functional_call(module, shadow, torch.empty(2, *image, device="meta"))
    except RuntimeError as error:
        raise TorchcapsError(
            f"an image of (channels, height, width) = {image} does not pass through the "
            f"convolutions ({str(error).splitlines()[0]}); use a larger image or "
            f"smaller kernels, or check its channels."
        ) from None
    channels, height, width = features.shape[1:]
    return channels, height, width
