"""A convolution that takes the cheaper of two ways to the same numbers."""

from typing import cast, final

import torch
from torch import Tensor, nn

from torchcaps.ops.checks import without_autocast
from torchcaps.ops.fourier import Pair, fourier_convolution, saving

__all__ = ["LargeConv2d"]

# Multiplications a direct convolution must have to one through Fourier space, which has more to
# move.
WORTH = 2.0


@final
class LargeConv2d(nn.Conv2d):
    """`nn.Conv2d` whose large kernels go through Fourier space on a CPU, where that takes less than
    half of the multiplications; see `ops.fourier`. Zero padding, no groups, no dilation.

    `is_direct = True`, or `use_backend(network, "plain")`, turns it off. So do tracers and
    compilers, which know convolutions better than what they are made of.
    """

    is_direct: bool = False

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling() or not self.pays(x):
            return super().forward(x)
        dtype = x.dtype
        if torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")
        with without_autocast(x):
            maps, kernels = x.to(dtype), self.weight.to(dtype)
            return fourier_convolution(maps, kernels, self.bias, **self._how())

    def pays(self, x: Tensor) -> bool:
        """Whether maps [b, c, h, w] go through Fourier space."""
        if self.is_direct or x.device.type != "cpu" or x.ndim != 4:
            return False
        if self.groups != 1 or self.dilation != (1, 1) or isinstance(self.padding, str):
            return False
        if self.padding_mode != "zeros" or x.shape[1] != self.in_channels:
            return False
        return saving(x.shape, self.weight.shape, **self._how()) >= WORTH

    def _how(self) -> dict[str, Pair]:
        return {"stride": cast(Pair, self.stride), "padding": cast(Pair, self.padding)}
