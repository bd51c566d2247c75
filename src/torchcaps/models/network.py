"""The common shape of a capsule network: backbone, primary capsules, dense layers, decoder."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers import Decoder, DenseCapsules, PrimaryCapsules
from torchcaps.ops.checks import may_look
from torchcaps.types import Capsules, Grid, Keep, LayerTrace, Output

__all__ = ["CapsuleNetwork"]


class CapsuleNetwork(nn.Module):
    """From images [b, c, h, w] in [0, 1] to class lengths, a reconstruction and a trace."""

    def __init__(
        self,
        *,
        image: tuple[int, int, int],
        backbone: nn.Module,
        primary: PrimaryCapsules,
        primary_grid: Grid,
        layers: Mapping[str, DenseCapsules],
        decoder: Decoder | None,
    ):
        super().__init__()
        self.image = image
        self.backbone = backbone
        self.primary = primary
        self.primary_grid = primary_grid
        self.layers = nn.ModuleDict(layers)
        self.decoder = decoder

    def forward(
        self, image: Tensor, target: Tensor | None = None, *, keep: Keep = "none"
    ) -> Output:
        """`target` [b] tells the decoder which class to draw; without it the longest is drawn."""
        self._check(image)
        capsules: Capsules = self.primary(self.backbone(image))
        grid: Grid | None = self.primary_grid
        trace = []
        for name, layer in self.layers.items():
            assert isinstance(layer, DenseCapsules)
            routed = layer(capsules, keep=keep)
            if keep != "none":
                over, weight = layer.routing.normalised_over, layer.weight
                trace.append(LayerTrace(name, capsules, routed, grid, over, weight))
            capsules, grid = routed.parents, None
        assert capsules.activation is not None
        drawn = None if self.decoder is None else self.decoder(capsules, target)
        return Output(capsules.activation, "lengths", capsules, drawn, tuple(trace))

    def _check(self, image: Tensor) -> None:
        if image.ndim != 4 or tuple(image.shape[1:]) != self.image:
            raise TorchcapsError(
                f"this network takes images [batch, {', '.join(map(str, self.image))}], but came "
                f"with shape {list(image.shape)}; a single image needs image.unsqueeze(0), another "
                f"size needs create_model(..., image=(channels, height, width))."
            )
        if not image.is_floating_point():
            raise TorchcapsError(
                f"images must be floating point in [0, 1], but came as {image.dtype}; "
                f"for bytes use image.float() / 255."
            )
        weight = next(self.parameters())
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
