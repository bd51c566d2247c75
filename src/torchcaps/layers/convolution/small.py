"""A convolution with 3×3 kernels that takes fewer products to the same numbers."""

from typing import final

import torch
from torch import Tensor, nn

from torchcaps.ops.convolution import winograd
from torchcaps.ops.native.build import available
from torchcaps.ops.tracing import is_looked_through


@final
class SmallConv2d(nn.Conv2d):
    """`nn.Conv2d` that computes 3×3 kernels with stride 1 by Winograd's minimal filtering, on a CPU
    with a compiler and in float32; see `ops.convolution.winograd`. It does so without groups and
    dilation, with zero padding, and where there are channels and positions enough for it to pay.

    `is_direct = True`, or `use_backend(network, "plain")`, turns it off. So do autocast,
    torch.compile, torch.export, torch.jit.trace and torch.func, to which it is an ordinary
    convolution.
    """

    is_direct: bool = False

    def forward(self, x: Tensor) -> Tensor:
        # Read once: a parametrization makes it anew each time.
        weight, bias = self.weight, self.bias
        # What most often says no comes first: for one image asking takes longer than adding.
        if (
            self.kernel_size != (3, 3)
            or self.stride != (1, 1)
            or torch.compiler.is_compiling()
            or is_looked_through()
            or not self._pays(x, weight, bias)
        ):
            y: Tensor = self._conv_forward(x, weight, bias)
            return y
        return winograd.winograd_convolution(x, weight, bias, padding=int(self.padding[0]))

    def pays(self, x: Tensor) -> bool:
        """Whether maps [b, c, h, w] go that way. What does not fit goes directly, and torch says
        why."""
        return self._pays(x, self.weight, self.bias)

    def _pays(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
        if self.kernel_size != (3, 3) or self.stride != (1, 1) or self.is_direct or x.ndim != 4:
            return False
        padding, shape = self.padding, x.shape
        if isinstance(padding, str) or padding[0] != padding[1]:
            return False
        if not winograd.pays(shape, weight.shape, padding[0]) or shape[1] != self.in_channels:
            return False
        if self.dilation != (1, 1) or self.groups != 1 or self.padding_mode != "zeros":
            return False
        given = [x, weight] if bias is None else [x, weight, bias]
        if any(each.device.type != "cpu" or each.dtype != torch.float32 for each in given):
            return False
        return not torch.is_autocast_enabled("cpu") and available()
