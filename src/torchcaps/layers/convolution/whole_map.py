"""A depthwise convolution that is a product: one as large as the map has one position."""

from typing import final

import torch
from torch import Tensor, nn

from torchcaps.ops.convolution import whole_map_convolution
from torchcaps.ops.tracing import is_looked_through


@final
class WholeMapConv2d(nn.Conv2d):
    """`nn.Conv2d` of one kernel a channel, as large as the map, which leaves one value a channel.
    On a CPU it is computed as products of vectors, see `ops.convolution.whole_map`.

    `is_direct = True`, or `use_backend(network, "plain")`, turns that off. So do autocast and maps
    of other sizes, and torch.export, torch.jit.trace and torch.func, to which it is an ordinary
    convolution.
    """

    is_direct: bool = False

    def __init__(self, channels: int, height: int, width: int):
        super().__init__(channels, channels, (height, width), groups=channels)

    def forward(self, x: Tensor) -> Tensor:
        if is_looked_through() or not self._fits(x):
            return super().forward(x)
        return whole_map_convolution(x, self.weight, self.bias)

    def _fits(self, x: Tensor) -> bool:
        if self.is_direct or x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return False
        shape = (self.in_channels, *self.kernel_size)
        # Half precision is rounded less often by a convolution.
        fits = x.ndim == 4 and x.shape[1:] == shape and x.dtype in (torch.float32, torch.float64)
        return fits and x.dtype == self.weight.dtype
