"""What the convolution with a kernel of our own costs, counted as in `ops.costs.base`. How much
memory it borrows, the kernel itself tells."""

import math

import torch
from torch import Tensor

from torchcaps.ops.convolution import winograd
from torchcaps.ops.convolution.winograd import Convolution, Kernels
from torchcaps.ops.costs.base import count, register

__all__: list[str] = []


def _borrowed(given: Convolution, _: bool) -> int:
    # The gradient of a 3×3 convolution is one that is padded by what is missing to 2.
    padding = 2 - given.padding if given.turned else given.padding
    maps = given.x, winograd.convolved_shapes(given)
    return 4 * int(winograd.planned(*maps, padding, of_kernels=False).workspace_size)


def _borrowed_for_kernels(given: Kernels, _: bool) -> int:
    return 4 * int(winograd.planned(*given, of_kernels=True).workspace_size)


def _filtered(x: Tensor, y: Tensor) -> int:
    tiles = len(y) * math.ceil(y.shape[2] / 2) * math.ceil(y.shape[3] / 2)
    # 16 products of matrices, whichever way round they are.
    return 2 * 16 * tiles * x.shape[1] * y.shape[1]


register(
    winograd.convolve,
    _borrowed,
    lambda given: _filtered(given.x, winograd.convolved_shapes(given)),
)
# Torch counts baddbmm, but not in place.
count(
    torch.ops.aten.baddbmm_,
    lambda sums, maps, kernels, **_: 2 * maps.numel() * kernels.shape[2],
)
register(winograd.kernels, _borrowed_for_kernels, lambda given: _filtered(*given[:2]))
