"""A network that others have trained, as a backbone: its last maps, by its own normalisation."""

from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers.backbone import Maps, maps_after


class PretrainedBackbone(nn.Module):
    """From images in [0, 1] to the last feature map [b, c, h, w] of a network that others made.

    It goes by the names that timm gives: `forward_features` where there is one, the last of a list
    of maps, channels last where `output_fmt` says "NHWC", and pooled vectors of `num_features` as
    maps of 1×1. Images are normalised by `mean` and `std` of `pretrained_cfg`, where it has one;
    grey ones are shown in each of its channels.

    Arguments:
        module: the network; where it has `reset_classifier`, its classifier is taken off.

    >>> backbone = PretrainedBackbone(nn.Sequential(nn.Conv2d(3, 32, 5, stride=4)))
    >>> head = CapsuleHead.after(backbone, image=(3, 64, 48), n_classes=7)
    """

    mean: Tensor  # [c, 1, 1]
    std: Tensor  # [c, 1, 1]

    def __init__(self, module: nn.Module):
        super().__init__()
        if callable(reset := getattr(module, "reset_classifier", None)):
            reset(0)
        self.module = module
        said: Any = getattr(module, "pretrained_cfg", None) or {}
        # Whether it does what `standardise` of a network would do again.
        self.normalises = "std" in said
        for name, otherwise in (("mean", 0.0), ("std", 1.0)):
            numbers = torch.tensor(tuple(said.get(name, (otherwise,))))
            self.register_buffer(name, numbers[:, None, None])

    def forward(self, image: Tensor) -> Tensor:
        image = (image - self.mean) / self.std
        made = getattr(self.module, "forward_features", self.module)(image)
        maps = made[-1] if isinstance(made, list | tuple) and made else made
        if isinstance(maps, Tensor) and maps.ndim == 4:
            is_last = getattr(self.module, "output_fmt", None) == "NHWC"
            return maps.movedim(-1, 1) if is_last else maps
        # Scores of classes are vectors too.
        n = getattr(self.module, "num_features", None)
        if isinstance(maps, Tensor) and maps.ndim == 2 and maps.shape[1] == n:
            return maps[:, :, None, None]
        shape = list(maps.shape) if isinstance(maps, Tensor) else type(maps).__name__
        raise TorchcapsError(
            f"a backbone gives feature maps [batch, channels, height, width], or pooled vectors of "
            f"its num_features, but {type(self.module).__name__} gave {shape}; of timm take it "
            f"with features_only=True."
        )

    def maps_after(self, maps: Maps) -> Maps | None:
        if hasattr(self.module, "forward_features"):
            return None
        return maps_after(self.module, (max(maps[0], len(self.mean)), *maps[1:]))
