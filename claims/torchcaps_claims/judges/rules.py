"""The tests that rows name, as functions of one value a seed.

"One-sided, p < 0.05" holds where the 90 % t-interval lies on its side of the threshold, which is
the same; so do two one-sided tests of being within a threshold. "95 % bound" holds by the 95 %
interval. A statement fails by the 95 % interval, that of Bonferroni where the row says so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from torchcaps.study.intervals import (
    Interval,
    difference_interval,
    mean_interval,
    variance_ratio_interval,
)
from torchcaps_claims.claim import Claim
from torchcaps_claims.judges.evidence import Values
from torchcaps_claims.ranks import spearman
from torchcaps_claims.verdict import Side, StatementVerdict, StatementWord, word_of

__all__ = [
    "ONE_SIDED",
    "Cell",
    "all_of",
    "confirming",
    "each",
    "joined",
    "left_open",
    "mean_of",
    "minus",
    "most",
    "one_of",
    "rises",
    "slopes",
    "times",
    "varies",
]

CONFIDENCE, ONE_SIDED = 0.95, 0.90


@dataclass(frozen=True)
class Cell:
    """One statistic beside its threshold; with `against` the difference of two means whose seeds
    have nothing in common (Welch)."""

    values: Values
    side: Side = "greater"
    threshold: float = 0.0
    against: Values | None = None
    # What keeps it undecided, whatever its values.
    open_because: str | None = None

    @property
    def is_there(self) -> bool:
        return bool(self.values) and (self.against is None or bool(self.against))

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        first = list(self.values.values())
        if self.against is None:
            return mean_interval(first, confidence=confidence)
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


def each(
    claim: Claim, cells: Sequence[Cell], *, one_sided: bool = True, corrected: bool = False
) -> StatementVerdict | None:
    """Holds where every cell holds, fails where one fails, and shows the cell nearest to failing,
    one that fails with the interval by which it does.

    Where cells are missing, one of the others may let it fail; else there is no verdict.
    """
    there = [cell for cell in cells if cell.is_there]
    least: int = claim.conditions["n_seeds_min"]
    many = len(cells) if corrected else 1
    words = [cell.word(least, one_sided=one_sided, cells=many) for cell in there]
    if not there or (len(there) < len(cells) and "fails" not in words):
        return None
    order: tuple[StatementWord, ...] = ("fails", "undecided", "holds")
    word, cell = min(
        zip(words, there, strict=True), key=lambda both: (order.index(both[0]), both[1].slack())
    )
    confidence = 1 - (1 - CONFIDENCE) / many if word == "fails" else CONFIDENCE
    return StatementVerdict(
        word, cell.interval(confidence), cell.side, cell.threshold, open_because=cell.open_because
    )


def one_of(
    claim: Claim, cells: Sequence[Cell], *, corrected: bool = False
) -> StatementVerdict | None:
    """Holds where one cell holds, and fails where every one fails, by 95 % intervals. Corrected, a
    cell holds by a one-sided test at its share of 5 %, as the more cells there are, the more often
    one holds by chance."""
    return _unless_all_fail(
        claim, cells, any, 1 - (1 - ONE_SIDED) / len(cells) if corrected else CONFIDENCE
    )


def all_of(claim: Claim, cells: Sequence[Cell]) -> StatementVerdict | None:
    """Holds where all cells hold, and yet fails only where every one fails, by 95 % intervals."""
    return _unless_all_fail(claim, cells, all, CONFIDENCE)


def _unless_all_fail(
    claim: Claim,
    cells: Sequence[Cell],
    enough: Callable[[Iterable[bool]], bool],
    confidence: float,
) -> StatementVerdict | None:
    """Shows the cell nearest to holding; None where one is missing."""
    if not all(cell.is_there for cell in cells):
        return None
    least: int = claim.conditions["n_seeds_min"]

    def is_word(cell: Cell, word: StatementWord, confidence: float) -> bool:
        found = word_of(cell.interval(confidence), cell.side, cell.threshold, least)
        return cell.open_because is None and found == word

    best = max(cells, key=Cell.slack)
    word: StatementWord = "undecided"
    if all(is_word(cell, "fails", CONFIDENCE) for cell in cells):
        word = "fails"
    elif enough(is_word(cell, "holds", confidence) for cell in cells):
        word = "holds"
    because = best.open_because if word == "undecided" else None
    return StatementVerdict(word, best.interval(), best.side, best.threshold, open_because=because)


def confirming(part: StatementVerdict | None) -> StatementVerdict | None:
    """Of a part that a statement needs to hold and that cannot contradict it."""
    if part is None or part.word != "fails":
        return part
    return left_open(part, "this part of its row cannot contradict it")


def left_open(part: StatementVerdict, because: str) -> StatementVerdict:
    """The same numbers, which something else of the row keeps from deciding it, and what."""
    return replace(part, word="undecided", open_because=because)


def joined(*parts: StatementVerdict | None) -> StatementVerdict | None:
    """Of a statement of several parts: holds where all hold, fails where one fails, and shows the
    part that decides."""
    known = [part for part in parts if part is not None]
    for part in known:
        if part.word == "fails":
            return part
    if not known or len(known) < len(parts):
        return None
    return next((part for part in known if part.word == "undecided"), known[0])


def varies(
    claim: Claim,
    first: Mapping[int, Sequence[float]],
    second: Mapping[int, Sequence[float]],
    side: Side,
    threshold: float = 1.0,
) -> StatementVerdict | None:
    """Whether the variance of the first is on that side of so many times that of the second, by the
    95 % interval of a bootstrap over seeds."""
    ratio = variance_ratio_interval([*first.values()], [*second.values()], confidence=CONFIDENCE)
    if ratio is None:
        return None
    word = word_of(ratio, side, threshold, claim.conditions["n_seeds_min"])
    return StatementVerdict(word, ratio, side, threshold)


def minus(first: Values, second: Values) -> Values:
    """Differences of seeds that both have."""
    return {seed: first[seed] - second[seed] for seed in first if seed in second}


def times(factor: float, values: Values) -> Values:
    return {seed: factor * value for seed, value in values.items()}


def most(cells: Iterable[Values]) -> Values:
    """The largest of several, seed by seed; nothing where one of them is missing."""
    cells = list(cells)
    common = set.intersection(*map(set, cells)) if cells else set()
    return {seed: max(cell[seed] for cell in cells) for seed in sorted(common)}


def mean_of(cells: Iterable[Values]) -> Values:
    """The mean of several, seed by seed; nothing where one of them is missing."""
    cells = list(cells)
    common = set.intersection(*map(set, cells)) if cells else set()
    return {seed: fmean(cell[seed] for cell in cells) for seed in sorted(common)}


def slopes(by_place: Mapping[int, Values]) -> Values:
    """The slope of the straight line through the values of a seed; nothing where a place has no
    values."""
    places = list(by_place)
    middle = sum(places) / len(places)
    spread = sum((place - middle) ** 2 for place in places)
    common = set.intersection(*(set(values) for values in by_place.values()))
    return {
        seed: sum((place - middle) * by_place[place][seed] for place in places) / spread
        for seed in sorted(common)
    }


def rises(by_place: Mapping[int, Values]) -> Values:
    """Spearman's correlation of the place with the value, seed by seed; nothing where a place has
    no values."""
    places = tuple(by_place)
    common = set.intersection(*(set(values) for values in by_place.values()))
    return {
        seed: spearman(places, tuple(by_place[place][seed] for place in places))
        for seed in sorted(common)
    }
