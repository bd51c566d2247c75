"""One value a seed: arithmetic, and the tests that rows name.

"One-sided, p < 0.05" holds where the 90 % t-interval lies on its side of the threshold, which is
the same; so do two one-sided tests of being within a threshold. "95 % bound" holds by the 95 %
interval. A statement fails by the 95 % interval, that of Bonferroni where the row says so.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from torchcaps.study.intervals import Interval, mean_interval
from torchcaps_claims.intervals import difference_interval
from torchcaps_claims.ranks import spearman
from torchcaps_claims.verdict import Side, StatementWord, is_range_enough, word_of

CONFIDENCE, ONE_SIDED = 0.95, 0.90


class Values(dict[int, float]):
    """One value a seed, of a statistic in a system or of what is made of several."""

    def __sub__(self, other: Mapping[int, float]) -> "Values":
        """Differences of seeds that both have."""
        return Values({seed: self[seed] - other[seed] for seed in self if seed in other})

    def __rmul__(self, factor: float) -> "Values":
        return Values({seed: factor * value for seed, value in self.items()})

    def __truediv__(self, other: Mapping[int, float]) -> "Values":
        """How many times the other, of seeds where that is not 0."""
        return Values({seed: self[seed] / other[seed] for seed in self if other.get(seed)})

    @property
    def mean(self) -> float:
        return fmean(self.values())

    @property
    def interval(self) -> Interval:
        return mean_interval([*self.values()], confidence=CONFIDENCE)

    def greater(self, threshold: float) -> "Cell":
        return Cell(self, "greater", threshold)

    def less(self, threshold: float = 0.0) -> "Cell":
        return Cell(self, "less", threshold)

    def within(self, threshold: float) -> "Cell":
        return Cell(self, "within", threshold)


@dataclass(frozen=True)
class Cell:
    """One statistic beside its threshold; with `against` the difference of two means whose seeds
    have nothing in common (Welch)."""

    values: Values
    side: Side = "greater"
    threshold: float = 0.0
    against: Values | None = None
    # What keeps it undecided, whatever its values, and whether it leans to a side then.
    open_because: str | None = None
    leans: bool = True

    @property
    def is_there(self) -> bool:
        return bool(self.values) and (self.against is None or bool(self.against))

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Take the interval of the mean; where that crosses the threshold and no seed does, since
        one of them is far below the others, that of the median, from the least seed to the
        greatest."""
        first = list(self.values.values())
        if self.against is None:
            mean = mean_interval(first, confidence=confidence)
            crosses = mean.low is not None and mean.low <= self.threshold <= (mean.high or 0.0)
            is_apart = min(first) > self.threshold or max(first) < self.threshold
            if crosses and is_apart and is_range_enough(len(first), confidence):
                return mean._replace(low=min(first), high=max(first))
            return mean
        return difference_interval(first, list(self.against.values()), confidence=confidence)

    def word(self, least: int, *, one_sided: bool, cells: int) -> StatementWord:
        """By itself it must hold; only failing is corrected for the number of cells."""
        if self.open_because is not None:
            return "undecided"
        is_wide = one_sided or self.side == "within"
        by_itself = self.interval(ONE_SIDED if is_wide else CONFIDENCE)
        together = self.interval(1 - (1 - CONFIDENCE) / cells)
        if word_of(by_itself, self.side, self.threshold, least) == "holds":
            return "holds"
        fails = word_of(together, self.side, self.threshold, least) == "fails"
        return "fails" if fails else "undecided"

    def slack(self) -> float:
        """How far the mean is on its side."""
        mean = self.interval().mean
        if self.side == "within":
            return self.threshold - abs(mean)
        return mean - self.threshold if self.side == "greater" else self.threshold - mean


def seed_by_seed(
    function: Callable[[list[float]], float], cells: Iterable[Mapping[int, float]]
) -> Values:
    """A function of the values of several cells; nothing where one of them is missing."""
    cells = list(cells)
    common = set.intersection(*map(set, cells)) if cells else set()
    return Values({seed: function([cell[seed] for cell in cells]) for seed in sorted(common)})


def most(cells: Iterable[Values]) -> Values:
    return seed_by_seed(max, cells)


def mean_of(cells: Iterable[Values]) -> Values:
    return seed_by_seed(fmean, cells)


def slopes(by_place: Mapping[int, Values]) -> Values:
    """The slope of the straight line through the values of a seed."""
    middle = sum(by_place) / len(by_place)
    steps = [place - middle for place in by_place]
    spread = sum(step**2 for step in steps)

    def slope(values: list[float]) -> float:
        return sum(step * value for step, value in zip(steps, values, strict=True)) / spread

    return seed_by_seed(slope, by_place.values())


def rises(by_place: Mapping[int, Values]) -> Values:
    """Spearman's correlation of the place with the value."""
    return seed_by_seed(lambda values: spearman([*by_place], values), by_place.values())
