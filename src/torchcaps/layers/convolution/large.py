"""A convolution that takes the cheaper of two ways to the same numbers."""

from typing import cast, final

import torch
from torch import Tensor, nn

from torchcaps.ops.checks import without_autocast
from torchcaps.ops.convolution.fourier import Pair, fourier_convolution, saving
from torchcaps.ops.tracing import is_looked_through

# Multiplications a direct convolution must have to one through Fourier space, which has more to
# move; where they are twice as many, both take about as long.
WORTH = 2.5
# What autocast casts.
NARROW = {torch.float32, torch.bfloat16, torch.float16}


@final
class LargeConv2d(nn.Conv2d):
    """`nn.Conv2d` that trains large kernels through Fourier space on a CPU where that takes far
    fewer multiplications; see
    `ops.convolution.fourier`. It does so with zero padding, without groups and
    dilation, and where gradients are wanted: without them a direct convolution is as fast and takes
    less memory.

    `is_direct = True`, or `use_backend(network, "plain")`, turns it off. So do torch.compile,
    torch.export, torch.jit.trace and torch.func, to which it is an ordinary convolution.
    """

    is_direct: bool = False

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling() or is_looked_through() or not self.pays(x):
            return super().forward(x)
        dtype = torch.get_autocast_dtype("cpu") if _casts() else x.dtype
        with without_autocast(x):
            maps, kernels = x.to(dtype), self.weight.to(dtype)
            return fourier_convolution(maps, kernels, self.bias, **self._how())

    def pays(self, x: Tensor) -> bool:
        """Whether maps [b, c, h, w] go through Fourier space. What does not fit goes directly, and
        torch says why."""
        if self.is_direct or x.device.type != "cpu" or x.ndim != 4:
            return False
        if not (torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad)):
            return False
        dtypes = {x.dtype, self.weight.dtype}
        if not (dtypes <= NARROW if _casts() else len(dtypes) == 1 and x.is_floating_point()):
            return False
        if self.groups != 1 or self.dilation != (1, 1) or isinstance(self.padding, str):
            return False
        if self.padding_mode != "zeros" or x.shape[1] != self.in_channels:
            return False
        return saving(x.shape, self.weight.shape, **self._how()) >= WORTH

    def _how(self) -> dict[str, Pair]:
        return {"stride": cast(Pair, self.stride), "padding": cast(Pair, self.padding)}


def _casts() -> bool:
    return torch.is_autocast_enabled("cpu")
