"""The scales of statistics: no interval on a page is wider than what a number can be."""

import math

from torchcaps.study.intervals import Interval

# By the first word of a statistic; every other one is zero or more.
PERCENT = ("accuracy", "sparsity")
SIGNED = ("agreement", "cancellation", "corr", "pearson")


def scale_of(statistic: str) -> tuple[float, float]:
    """The least and the largest value that a statistic can have.

    >>> scale_of("accuracy@affnist-style/test")
    (0.0, 100.0)
    """
    if statistic.startswith(PERCENT):
        return 0.0, 100.0
    return -math.inf if statistic.startswith(SIGNED) else 0.0, math.inf


def clipped(found: Interval, low: float, high: float) -> Interval:
    """The interval without what lies beyond its scale."""
    if found.low is None or found.high is None:
        return found
    return found._replace(low=max(found.low, low), high=min(found.high, high))
