"""A statement before its judge, and the table of judges."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from torchcaps.study.intervals import Interval
from torchcaps_claims.claim import find_claim
from torchcaps_claims.intervals import variance_ratio_interval
from torchcaps_claims.judges.evidence import Evidence
from torchcaps_claims.judges.values import CONFIDENCE, ONE_SIDED, Cell, Values
from torchcaps_claims.verdict import (
    LEAST_SEEDS,
    Side,
    StatementVerdict,
    StatementWord,
    word_of,
)

# None while records are missing.
Verdict = StatementVerdict | None
CANNOT_CONTRADICT = "this part of its row cannot contradict it"
NONE_DIED = "no capsule died, so nothing that makes capsules die was at work"


class Case(Evidence):
    """The records about a statement, what its row asks for, and the tests that rows name. Values
    without a side and a threshold are to be greater than 0."""

    @property
    def threshold(self) -> Any:
        """A number, or several by their names."""
        return self.claim.conditions["threshold"]

    @property
    def least(self) -> int:
        """The number of seeds that decides it."""
        n: int = self.claim.conditions["n_seeds_min"]
        return n

    def each(
        self, *cells: Cell | Values, one_sided: bool = True, corrected: bool = False
    ) -> Verdict:
        """Holds where every cell holds, and fails where one fails; corrected, by the interval of
        Bonferroni. Shows the cell nearest to failing, one that fails with the interval by which it
        does.

        Where cells are missing, one of the others may let it fail; else there is no verdict.
        """
        there = [cell for cell in _cells(cells) if cell.is_there]
        many = len(cells) if corrected else 1
        words = [cell.word(self.least, one_sided=one_sided, cells=many) for cell in there]
        if not there or (len(there) < len(cells) and "fails" not in words):
            return None
        together = {"fails": 1 - (1 - CONFIDENCE) / many}
        found = [
            (cell.slack(), shown(word, cell, together.get(word, CONFIDENCE)))
            for word, cell in zip(words, there, strict=True)
        ]
        return min(found, key=lambda both: (_rank(both[1]), both[0]))[1]

    def bound(self, *cells: Cell | Values, corrected: bool = False) -> Verdict:
        """Judge as `each` does, by 95 % intervals, which rows call a 95 % bound."""
        return self.each(*cells, one_sided=False, corrected=corrected)

    def one_of(self, *cells: Cell | Values, corrected: bool = False) -> Verdict:
        """Holds where one cell holds, and fails where every one fails, by 95 % intervals.
        Corrected, a cell holds by a one-sided test at its share of 5 %, as the more cells there
        are, the more often one holds by chance."""
        confidence = 1 - (1 - ONE_SIDED) / len(cells) if corrected else CONFIDENCE
        return self._unless_all_fail(_cells(cells), any, confidence)

    def all_of(self, *cells: Cell | Values) -> Verdict:
        """Holds where all cells hold, and yet fails only where every one fails, by 95 %
        intervals."""
        return self._unless_all_fail(_cells(cells), all, CONFIDENCE)

    def _unless_all_fail(
        self, cells: Sequence[Cell], enough: Callable[[Iterable[bool]], bool], confidence: float
    ) -> Verdict:
        """Shows the cell nearest to holding; None where one is missing."""
        if not all(cell.is_there for cell in cells):
            return None

        def is_word(cell: Cell, word: StatementWord, confidence: float) -> bool:
            found = word_of(cell.interval(confidence), cell.side, cell.threshold, self.least)
            return cell.open_because is None and found == word

        word: StatementWord = "undecided"
        if all(is_word(cell, "fails", CONFIDENCE) for cell in cells):
            word = "fails"
        elif enough(is_word(cell, "holds", confidence) for cell in cells):
            word = "holds"
        return shown(word, max(cells, key=Cell.slack))

    def decided(
        self, ours: Interval, side: Side, threshold: float, *, holds: bool, fails: bool = False
    ) -> StatementVerdict:
        """Decide by something other than an interval; too few seeds decide nothing."""
        word: StatementWord = "fails" if fails else "holds" if holds else "undecided"
        return StatementVerdict(
            word if ours.n >= self.least else "undecided", ours, side, threshold
        )

    def if_any_died(self, part: Verdict) -> Verdict:
        """Leave a part as it is, but open where no capsule died anywhere, and say so."""
        is_zero = part is not None and part.ours.low == part.ours.high == part.threshold
        return without_lean(part, NONE_DIED) if is_zero else part

    def varies(
        self,
        first: Mapping[int, Sequence[float]],
        second: Mapping[int, Sequence[float]],
        side: Side,
        threshold: float = 1.0,
    ) -> Verdict:
        """Whether the variance of the first is on that side of so many times that of the second, by
        the 95 % interval of a bootstrap over seeds."""
        ours = variance_ratio_interval([*first.values()], [*second.values()], confidence=CONFIDENCE)
        if ours is None:
            return None
        return StatementVerdict(word_of(ours, side, threshold, self.least), ours, side, threshold)


Judge = Callable[[Case], Verdict]


def _cells(cells: Sequence[Cell | Values]) -> list[Cell]:
    return [cell if isinstance(cell, Cell) else Cell(cell) for cell in cells]


def shown(word: StatementWord, cell: Cell, confidence: float = CONFIDENCE) -> StatementVerdict:
    """A verdict that shows this cell."""
    ours = cell.interval(confidence)
    if word != "undecided" or cell.open_because is None:
        return StatementVerdict(word, ours, cell.side, cell.threshold)
    would = word_of(ours, cell.side, cell.threshold, LEAST_SEEDS) if cell.leans else None
    return StatementVerdict(
        word, ours, cell.side, cell.threshold, open_because=cell.open_because, would=would
    )


def _rank(part: StatementVerdict) -> int:
    """Rank the parts of a statement; the least decides: one that fails, that would, and so on."""
    worth = part.would if part.word == "undecided" and part.would else part.word
    order = {"fails": 1, "undecided": 2, "holds": 3}
    return {"fails": 0, "holds": 4}.get(part.word, order[worth])


def open_if(
    is_so: bool, part: Verdict, because: str, *, word: StatementWord | None = None
) -> Verdict:
    """Leave a part open where something else of the row keeps its numbers from deciding, and say
    what; with a word only a part that comes to this word."""
    if part is None or not is_so or word not in (None, part.word):
        return part
    would = part.would if part.word == "undecided" else part.word
    return replace(part, word="undecided", open_because=because, would=would)


def without_lean(part: Verdict, because: str) -> Verdict:
    """Leave open, leaning to neither side, numbers of something that the sentence is not about."""
    return part and part.left_open(because)


def holds(part: Verdict) -> bool:
    return part is not None and part.word == "holds"


def fails(part: Verdict) -> bool:
    return part is not None and part.word == "fails"


def printed(name: str) -> float:
    """The number that a claim prints."""
    value = find_claim(name).value
    assert isinstance(value, float)
    return value


def confirming(part: Verdict) -> Verdict:
    """Let a part, which a statement needs to hold, neither contradict it nor lean against it."""
    is_against = part is not None and "fails" in (part.word, part.would)
    return without_lean(part, CANNOT_CONTRADICT) if is_against else part


def joined(*parts: Verdict) -> Verdict:
    """Join the parts of a statement: it holds where all hold, fails where one fails, and shows the
    part that decides."""
    known = [part for part in parts if part is not None]
    first = min(known, key=_rank, default=None)
    is_there = first is not None and (first.word == "fails" or len(known) == len(parts))
    return first if is_there else None


class Entry(NamedTuple):
    """The judge of a statement, and which records may stand beside each other before it."""

    judge: Judge
    # It compares no network with another: it may rest on narrow and on wide ones at once.
    with_itself: bool
    # It compares networks on one data set at a time.
    within_a_set: bool


JUDGES: dict[str, Entry] = {}


def judge(
    *names: str, with_itself: bool = False, within_a_set: bool = False
) -> Callable[[Judge], Judge]:
    """Enter a function as the judge of these statements."""

    def enter(function: Judge) -> Judge:
        JUDGES.update(dict.fromkeys(names, Entry(function, with_itself, within_a_set)))
        return function

    return enter


def judge_each(statements: Mapping[str, Callable[[Case], Iterable[Cell | Values]]]) -> None:
    """Enter the judges of statements that hold where every one of their cells holds, corrected."""
    for name, cells_of in statements.items():
        judge(name)(partial(_judge_each, cells_of))


def _judge_each(cells_of: Callable[[Case], Iterable[Cell | Values]], case: Case) -> Verdict:
    return case.each(*cells_of(case), corrected=True)
