"""The t-interval of a mean over few seeds."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torchcaps._checks import check_count, check_number
from torchcaps._extras import needing
from torchcaps.errors import TorchcapsError

with needing("scipy", room="study", extra="study"):
    from scipy import special


class Interval(NamedTuple):
    """A mean, and the ends of its interval; without two values there are no ends."""

    mean: float
    low: float | None
    high: float | None
    n: int

    def text(self) -> str:
        """Write the mean, and the ends where there are some."""
        ends = "" if self.low is None else f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{self.mean:.4g}{ends}"


def mean_interval(values: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Take the mean of one value a seed, with its t-interval.

    The deviation is of the sample (n - 1).

    Arguments:
        values: one a seed.
        confidence: how often such intervals hold the mean of all trainings.

    >>> mean_interval([1.0, 2.0, 3.0]).low.__round__(3)
    -0.484
    """
    n = len(values)
    if n == 0 or not all(map(math.isfinite, values)):
        raise TorchcapsError(
            f"an interval needs finite values, one a seed, but came {list(values)}; a run that "
            f"diverged has no accuracy to average and belongs into the record as failed."
        )
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(mean, None, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = t_quantile((1 + confidence) / 2, n - 1) * math.sqrt(variance / n)
    return Interval(mean, mean - half, mean + half, n)


def t_quantile(probability: float, freedom: int) -> float:
    """Say where Student's t distribution with whole degrees of freedom reaches a probability.

    >>> round(t_quantile(0.975, 4), 3)
    2.776
    """
    check_number("probability", probability, above=0, below=1)
    check_count("freedom", freedom, of="degrees of freedom")
    if probability < 0.5:
        return -t_quantile(1 - probability, freedom)
    return float(special.stdtrit(freedom, probability))
