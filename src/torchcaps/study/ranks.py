"""Whether one number rises with another, by their ranks alone."""

import torch
from torch import Tensor

__all__ = ["spearman"]


def spearman(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """Correlation of ranks; equal numbers share the mean of their ranks. 0 where one is constant.

    >>> spearman((1, 2, 3), (0.9, 0.8, 0.1))
    -1.0
    """
    x, y = (_ranks(torch.tensor(each, dtype=torch.float64)) for each in (first, second))
    x, y = x - x.mean(), y - y.mean()
    size = float(x.norm() * y.norm())
    return round(float(x @ y) / size, 12) if size else 0.0


def _ranks(x: Tensor) -> Tensor:
    below = (x.unsqueeze(1) > x).sum(1)
    equal = (x.unsqueeze(1) == x).sum(1)
    return below + (equal - 1).double() / 2
