"""What the convolution with a kernel of its own costs, counted as in `ops.costs.base`. How much it
borrows, the kernel says."""

import math

from torch import Tensor

from torchcaps.ops.convolution import winograd
from torchcaps.ops.convolution.winograd import Convolution, Kernels
from torchcaps.ops.costs.base import Cost, register

__all__: list[str] = []


def _convolve(given: Convolution) -> Cost:
    padding = 2 - given.padding if given.turned else given.padding
    return _filtered(given.x, winograd.convolved_shapes(given), padding, of_kernels=False)


def _kernels(given: Kernels) -> Cost:
    return _filtered(*given, of_kernels=True)


def _filtered(x: Tensor, y: Tensor, padding: int, *, of_kernels: bool) -> Cost:
    tiles = len(y) * math.ceil(y.shape[2] / 2) * math.ceil(y.shape[3] / 2)
    # 16 products of matrices, whichever way round they are.
    flops = 2 * 16 * tiles * x.shape[1] * y.shape[1]
    job = winograd.planned(x, y, padding, of_kernels=of_kernels)
    return Cost(flops, 4 * job.workspace_size)


register(winograd.convolve, _convolve)
register(winograd.kernels, _kernels)
