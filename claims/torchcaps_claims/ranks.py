"""Whether one number rises with another, by their ranks alone."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import torch

from torchcaps.study.intervals import Interval

DRAWS = 10_000


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Correlation of ranks; equal numbers share the mean of their ranks. 0 where one is constant.

    >>> spearman((1, 2, 3), (0.9, 0.8, 0.1))
    -1.0
    """
    from scipy.stats import spearmanr

    if 1 in (len({*first}), len({*second})):
        return 0.0
    return round(float(spearmanr(first, second).statistic), 12)


class RankTest(NamedTuple):
    """A correlation of ranks with its 95 % interval, and how often chance makes it as high."""

    ours: Interval
    chance: float


def rank_test(first: tuple[float, ...], second: tuple[float, ...]) -> RankTest:
    """Whether one number rises with another, over four cases or more.

    The interval is that of Bonett and Wright (2000), of r in place of ρ:
        tanh(artanh ρ ± 1.96 √((1 + ρ²/2) / (n - 3)))
    and chance is the one-sided test by permutations, 10,000 of which are drawn, the same every
    time, with the one that was found among them.

    >>> rank_test((1, 2, 3, 4), (1, 2, 3, 4)).ours.mean
    1.0
    """
    from scipy.stats import rankdata

    n, found = len(first), spearman(first, second)
    low = high = found
    if abs(found) < 1:
        half = NormalDist().inv_cdf(0.975) * math.sqrt((1 + found**2 / 2) / (n - 3))
        low, high = (math.tanh(math.atanh(found) + end) for end in (-half, half))
    x, y = (torch.from_numpy(rankdata(each)) for each in (first, second))
    x, y = x - x.mean(), y - y.mean()
    order = torch.rand(DRAWS, n, generator=torch.Generator().manual_seed(0)).argsort(1)
    # Products of ranks are quarters, so what is nearer is equal but for rounding.
    as_high = int((y[order] @ x >= y @ x - 0.1).sum())
    return RankTest(Interval(found, low, high, n), (as_high + 1) / (DRAWS + 1))
