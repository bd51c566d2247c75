"""Couplings on a grid of K levels [renzulli2025] §3.1.2.

    index(c) = round(c (K − 1)),    q(c) = index(c) / (K − 1)

Departures: none.
Ambiguities: the paper says "uniform, K levels" and no more. Levels lie at k / (K − 1), so K = 11
has steps of 0.1; a value half way between two levels goes to the even one. The grid is not clamped
to [0, 1]: couplings that may be negative, or above one, keep their order.
"""

import torch
from torch import Tensor

from torchcaps._checks import check_count, check_finite


def quantised_index(coupling: Tensor, *, levels: int = 11) -> Tensor:
    """Give the number of the level next to each coupling, int64; arguments as of `quantise`."""
    check_count("levels", levels, least=2)
    check_finite("couplings to quantise", coupling)
    scaled = coupling.double() * (levels - 1)
    # What lies half way but for the rounding of its own dtype lies half way: 0.1 · 5 is 0.5, and
    # 0.1 in float32 a little more than 0.1.
    half = scaled.floor() + 0.5
    eps = torch.finfo(coupling.dtype).eps if coupling.is_floating_point() else 0.0
    rounding = eps * scaled.abs()
    # Where a dtype is too coarse to tell a half from a level, it is the level.
    is_level = (scaled - scaled.round()).abs() <= rounding
    is_tie = ((scaled - half).abs() <= rounding) & ~is_level
    return torch.where(is_tie, half, scaled).round().to(torch.int64)


def quantise(coupling: Tensor, *, levels: int = 11) -> Tensor:
    """Move each coupling to the level next to it; couplings need not sum to one any more.

    Arguments:
        coupling: couplings of any shape.
        levels: how many levels lie from 0 to 1, both included; two at least.

    >>> quantise(torch.tensor([0.26, 0.74]), levels=3)
    tensor([0.5000, 0.5000])
    """
    return (quantised_index(coupling, levels=levels).double() / (levels - 1)).to(coupling)
