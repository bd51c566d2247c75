"""Intervals of a difference of means, of a share of events and of a ratio of variances; and scales:
no interval on a page is wider than what a number can be."""

import math
import random
import statistics
from collections.abc import Sequence

from scipy import special

from torchcaps.errors import TorchcapsError
from torchcaps.study.intervals import Interval, mean_interval, t_quantile
from torchcaps_claims.verdict import is_range_enough

# Bootstrap draws of seeds, the same ones every time.
DRAWS = 10_000
ROUNDING = 1e-12
# Statistics in percent, and those that may be negative, by how they begin; others are 0 or more.
PERCENT = ("accuracy", "sparsity")
SIGNED = ("agreement", "cancellation", "corr", "pearson")


def difference_interval(
    first: Sequence[float], second: Sequence[float], *, confidence: float = 0.95
) -> Interval:
    """The difference of two means over seeds that have nothing in common, with the interval of
    Welch; `n` is that of the smaller group. Degrees of freedom are rounded down, for an interval
    that is a little too wide and never too narrow.

    >>> difference_interval([3.0, 4.0, 5.0], [1.0, 2.0, 3.0]).mean
    2.0
    """
    groups = [mean_interval(each) for each in (first, second)]
    mean, n = groups[0].mean - groups[1].mean, min(group.n for group in groups)
    if n == 1:
        return Interval(mean, None, None, 1)
    # Of each mean, the square of its standard error.
    errors = [
        math.fsum((value - group.mean) ** 2 for value in each) / (group.n * (group.n - 1))
        for each, group in zip((first, second), groups, strict=True)
    ]
    error = math.fsum(errors)
    if error == 0:
        return Interval(mean, mean, mean, n)
    # From shares of the error: the squares of small errors themselves would underflow to zero.
    parts = ((e / error) ** 2 / (group.n - 1) for e, group in zip(errors, groups, strict=True))
    # Where rounding left a whole number a little too small, it is not rounded down by one.
    freedom = math.floor(1 / math.fsum(parts) * (1 + 1e-9))
    half = t_quantile((1 + confidence) / 2, freedom) * math.sqrt(error)
    return Interval(mean, mean - half, mean + half, n)


def share_bounds(hits: int, n: int) -> tuple[float, float]:
    """The ends of the 95 % interval of Clopper and Pearson of a share, of so many hits among `n`
    events; of no events 0 and 1.

    >>> low, high = share_bounds(0, 100)
    >>> round(high, 4)
    0.0362
    """
    if not 0 <= hits <= n:
        raise TorchcapsError(f"a share is of 0 to {n} events, but came as {hits} of them.")
    low = special.betaincinv(hits, n - hits + 1, 0.025) if hits else 0.0
    high = special.betaincinv(hits + 1, n - hits, 0.975) if hits < n else 1.0
    return float(low), float(high)


def variance_ratio_interval(
    first: Sequence[Sequence[float]],
    second: Sequence[Sequence[float]],
    *,
    confidence: float = 0.95,
) -> Interval | None:
    """How many times as large the variance of all values of the first is as that of the second,
    with the percentile interval of a bootstrap: seeds are drawn anew, of each group by itself, and
    all values of a seed stay together. None where the second does not vary; `n` is that of the
    smaller group.

    >>> variance_ratio_interval([[1.0], [3.0], [5.0]], [[1.0], [2.0], [3.0]]).mean
    4.0
    """
    n = min(len(first), len(second))
    if n == 0:
        return None
    groups = [_moments(seeds) for seeds in (first, second)]
    above, below = map(_variance, groups)
    if below == 0:
        return None
    if n == 1:
        return Interval(above / below, None, None, 1)
    draw = random.Random(0)
    found = []
    for _ in range(DRAWS):
        drawn, beside = (_variance(draw.choices(group, k=len(group))) for group in groups)
        # Of one seed, drawn over and over, nothing may vary but by rounding.
        found.append(drawn / beside if beside > ROUNDING * below else math.inf)
    found.sort()
    cut = round((1 - confidence) / 2 * DRAWS)
    return Interval(above / below, found[cut], found[-1 - cut], n)


def _moments(seeds: Sequence[Sequence[float]]) -> list[tuple[int, float, float]]:
    """Return the number of values of each seed, their sum and that of their squares, from the mean
    of all seeds."""
    middle = statistics.fmean(value for seed in seeds for value in seed)
    apart = [[value - middle for value in seed] for seed in seeds]
    return [(len(x), math.fsum(x), math.fsum(each * each for each in x)) for x in apart]


def _variance(moments: Sequence[tuple[int, float, float]]) -> float:
    n, total, squares = map(sum, zip(*moments, strict=True))
    return max(0.0, squares - total * total / n) / (n - 1) if n > 1 else 0.0


def scale_of(statistic: str) -> tuple[float, float]:
    """The least and the largest value that a statistic can have.

    >>> scale_of("accuracy@affnist-style/test")
    (0.0, 100.0)
    """
    if statistic.startswith(PERCENT):
        return 0.0, 100.0
    return -math.inf if statistic.startswith(SIGNED) else 0.0, math.inf


def clipped(
    found: Interval,
    low: float,
    high: float,
    *,
    values: Sequence[float] = (),
    confidence: float = 0.95,
) -> Interval:
    """The interval without what lies beyond its scale. Where so many values are given that their
    median lies between the least and the greatest of them as often, these are its ends instead:
    values that crowd at the end of a scale are too skew for Student's t.

    >>> clipped(Interval(90.0, 79.0, 101.0, 3), 0.0, 100.0).high
    100.0
    """
    if found.low is None or found.high is None or low <= found.low <= found.high <= high:
        return found
    if is_range_enough(len(values), confidence):
        return found._replace(low=min(values), high=max(values))
    return found._replace(low=max(found.low, low), high=min(found.high, high))
