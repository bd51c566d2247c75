"""Means over seeds, as `compare` shows them: an interval never says what cannot be."""

from collections.abc import Iterable, Sequence

from torchcaps.study.intervals import Interval, mean_interval
from torchcaps.train.class_measures import MEASURES

__all__ = ["ACCURACY", "is_share", "mean_in_words", "mean_over_seeds"]

ACCURACY = "accuracy"


def is_share(statistic: str) -> bool:
    """Whether it is in percent of the images."""
    return statistic.startswith(ACCURACY) or statistic in MEASURES


def mean_over_seeds(values: Iterable[float], names: Sequence[str], least: float) -> Interval | None:
    """Of one value a seed, in which the named statistics go; the ends of shares are from `least` to
    100, and values that are all the same have none. None without values."""
    found = [*values]
    if not found:
        return None
    mean, low, high, n = mean_interval(found)
    if low is None or high is None or min(found) == max(found):
        return Interval(found[0], None, None, n)
    if all(map(is_share, names)):
        return Interval(mean, max(low, least), min(high, 100.0), n)
    return Interval(mean, low, high, n)


def mean_in_words(found: Interval, runs: int) -> str:
    """With its number of seeds where not all have it."""
    n = f", n = {found.n}" if found.n < runs else ""
    if found.low is None:
        return f"{found.mean:.4g}{', the same in all seeds' if found.n > 1 else ''}{n}"
    return f"{found.mean:.4g} [{found.low:.4g}, {found.high:.4g}]{n}"
