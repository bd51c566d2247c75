"""Mean and standard deviation of a stream of rows, whatever its batches.

Of two parts with n_a and n_b rows, means m_a and m_b and sums of squared deviations S_a and S_b:
    m = m_a + (m_b − m_a) n_b / n
    S = S_a + S_b + (m_b − m_a)² n_a n_b / n
so no sum of squares is ever taken of values that are far from their mean.
"""

import torch
from torch import Tensor


class Moments:
    """Moments over the first axis, in float64 on the CPU."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros((), dtype=torch.float64)
        self._squares = torch.zeros((), dtype=torch.float64)

    def add(self, values: Tensor) -> None:
        """Add rows [k, ...]."""
        if not len(values):
            return
        values = values.detach().cpu().double()
        count, mean = len(values), values.mean(0)
        squares = ((values - mean) ** 2).sum(0)
        if not self.count:
            self.count, self.mean, self._squares = count, mean, squares
            return
        total, step = self.count + count, mean - self.mean
        self.mean = self.mean + step * (count / total)
        self._squares = self._squares + squares + step**2 * (self.count * count / total)
        self.count = total

    @property
    def variance(self) -> Tensor:
        """Return the variance over the population."""
        return self._squares / max(self.count, 1)

    @property
    def std(self) -> Tensor:
        """Return the standard deviation over the population."""
        return self.variance.sqrt()
