"""What records say about a claim: a function of values, by one rule for all papers, in code.

A number is `reproduced` when our mean lies within the tolerance of the printed one, or the printed
one within two standard errors of our mean; one standard error must be no larger than the tolerance.
It is `better` or `worse` when the whole 95 % interval over seeds lies beyond the tolerance, or all
of six seeds do, and `undecided` otherwise; always below three seeds, and where a reduced run
is too far from the paper's to be compared (`comparable.py`). The tolerance is a quarter of the
printed errors, or a tenth of another number, and no more than a quarter of what that misses to its
bound; a printed deviation widens nothing.

A statement about a statistic `holds` when the whole interval is on its side of the threshold,
`fails` when the whole interval is on the other side, and is `undecided` otherwise; always below the
number of seeds that its row asks for. It `leans yes` or `leans no` where the interval would decide
it, and networks are narrower or less often right than the paper's, or its row is left open.

What is counted, such as parameters, is one exact number and needs no seeds: it is `reproduced` if
every printed digit is met, rounded or cut off. Of a statement a test of this repository records
what it found: that it `holds`, that it `fails`, or neither. What an identity of our own decides is
so `by definition`, and no finding.

Changing a tolerance changes verdicts and no record.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Literal, Self, get_args

from torchcaps.errors import TorchcapsError
from torchcaps.study.intervals import Interval, mean_interval
from torchcaps_claims.claim import Claim

NumberWord = Literal[
    "reproduced",
    "better",
    "worse",
    "otherwise",
    "undecided",
    "not run at size",
    "on our default",
    "by definition",
]
StatementWord = Literal["holds", "fails", "undecided"]
# What an identity makes so.
Identity = Literal["by definition"]
# Which way a statement leans that is not decided.
Lean = Literal["leans yes", "leans no"]
Side = Literal["greater", "less", "within"]
NUMBERS: tuple[NumberWord, ...] = get_args(NumberWord)
LEANS: dict[StatementWord, Lean] = {"holds": "leans yes", "fails": "leans no"}
VERDICTS = (*NUMBERS[:4], "holds", "fails", *LEANS.values(), *NUMBERS[4:])

LEAST_SEEDS = 3
CONFIDENCE = 0.95
# Of what an accuracy, or a share of weights, misses to 100 %, or of itself where that is less,
TOLERANCE_OF_ERRORS = 0.25
SHARES = {"accuracy", "sparsity"}
# and of the value of everything else.
TOLERANCE_OF_OTHERS = 0.1
STANDARD_ERRORS = 2.0
ROUNDING = 1e-9
# Everything else is the better the higher; the papers praise what is lower of these.
LOWER_IS_BETTER_KINDS = {"entropy", "params"}
LOWER_IS_BETTER = {
    "cdr",
    "cdr max over experiments",
    "cds",
    "number of dictionary keys (parse trees)",
    "steps before learning starts (at least)",
    "dys upper bound",
}
# Of a layer of capsules.
AT_MOST_ONE = {"cnm", "car", "cdr"}
AT_MOST_ALL = {"cns", "cas", "cds", "capsules_alive"}
# Printed as a bound, which any larger number agrees with, or any smaller one.
AT_LEAST = {"steps before learning starts (at least)"}
AT_MOST = {"dys upper bound"}


@dataclass(frozen=True)
class _Compared:
    """Ours against what a claim says, and what keeps it from being decided, or decides it."""

    word: str
    ours: Interval
    open_because: str | None = field(default=None, kw_only=True)

    def by_definition(self, because: str) -> Self:
        """Say that an identity of our own makes these numbers so."""
        return replace(self, word="by definition", open_because=because)

    def left_open(self, because: str) -> Self:
        """Say that these numbers decide nothing."""
        return replace(self, word="undecided", open_because=because)

    def reason(self) -> str | None:
        """What keeps it from being decided, or decides it."""
        is_open = self.word in ("undecided", *LEANS.values())
        return self.open_because and (
            f"not decided: {self.open_because}" if is_open else self.open_because
        )

    def _because(self) -> str:
        return "" if self.open_because is None else f"; {self.reason()}"


@dataclass(frozen=True)
class NumberVerdict(_Compared):
    """A printed number against ours."""

    word: NumberWord
    claim: Claim
    tolerance: float
    # Why ours cannot be held against it; then it is undecided, whatever the interval.
    incomparable: str | None = None

    def text(self) -> str:
        """Write the verdict in one line."""
        why = "" if self.incomparable is None else f"{self.not_comparable()}; "
        unit = {None: "", "%": " %"}.get(self.claim.unit, f" {self.claim.unit}")
        return (
            f"{self.word}: {why}printed {self.claim.value}{unit}, ours {self._in_words()}, "
            f"tolerance {self.tolerance:.3g}{self._because()}"
        )

    def on_default(self, because: str) -> "NumberVerdict":
        """Say that the choice is ours: that another number came out is no fault of the paper."""
        return replace(self, word="on our default") if self.word in NUMBERS[1:3] else self

    def not_comparable(self) -> str:
        """The reason as a sentence that begins small."""
        return f"reduced run is not comparable: {self.incomparable}"

    def _in_words(self) -> str:
        if self.ours.n == 0:
            return f"{self.ours.mean:.4g} counted"
        return f"{self.ours.text()} over {self.ours.n} seed{'s' if self.ours.n > 1 else ''}"


@dataclass(frozen=True)
class ShownVerdict:
    """What a test of this repository shows of a claim."""

    word: Literal["holds", "fails", "reproduced", "undecided", "by definition"]
    test: str

    def text(self) -> str:
        """Write the verdict in one line."""
        verb = "left open" if self.word == "undecided" else "shown"
        return f"{self.word}: {verb} by {self.test}"


@dataclass(frozen=True)
class StatementVerdict(_Compared):
    """A statistic against the threshold of a statement."""

    word: StatementWord | Lean | Identity
    side: Side
    threshold: float
    # The seeds of each network, where `ours` is over those of several.
    pooled: tuple[int, ...] = ()
    # What it would be without what keeps it open.
    would: StatementWord | Lean | Identity | None = None

    def leaning(self, because: str | None = None) -> "StatementVerdict":
        """Say which way it leans, where something keeps it from being decided."""
        would = self.would if self.word == "undecided" else self.word
        if would not in LEANS:
            return self
        reasons = dict.fromkeys(filter(None, (self.open_because, because)))
        return replace(
            self, word=LEANS[would], open_because="; ".join(reasons) or None, would=would
        )

    def on_default(self, because: str) -> "StatementVerdict":
        """Say that the choice is ours, and may be what is refuted, or what is confirmed."""
        return self.leaning(because)

    def left_open(self, because: str) -> "StatementVerdict":
        """Say that these numbers decide nothing and lean to neither side."""
        return replace(super().left_open(because), would=None)

    @property
    def n_text(self) -> str:
        """Over how many seeds: "10", and of two networks "2 × 10" or "10 + 8"."""
        if not self.pooled:
            return str(self.ours.n)
        if len(set(self.pooled)) == 1:
            return f"{len(self.pooled)} × {self.pooled[0]}"
        return " + ".join(map(str, self.pooled))

    def text(self) -> str:
        """Write the verdict in one line."""
        asked_for = f"{'±' if self.side == 'within' else 'than '}{self.threshold:g}"
        return (
            f"{self.word}: {self.ours.text()} over {self.n_text} seeds, where "
            f"{self.side} {asked_for} is asked for{self._because()}"
        )


def judge(
    claim: Claim,
    values: Sequence[float],
    *,
    incomparable: str | None = None,
    is_other_network: bool = False,
) -> NumberVerdict:
    """The verdict on a printed number by one value a seed, in the unit of the claim; undecided
    where it says why they are incomparable, such as that the network is another, a narrower one.

    >>> judge(find_claim("gu2021-t1-capsnet-affnist"), [78.9, 79.1, 79.0]).word
    'reproduced'
    """
    printed = claim.value
    if claim.states or not isinstance(printed, int | float):
        raise TorchcapsError(
            f"{claim.id} is no number that could be reproduced; a statement is judged by "
            f"its interval, a shape by a test."
        )
    ours = mean_interval(values, confidence=CONFIDENCE)
    tolerance = tolerance_of(claim)
    word = _word(claim, values, ours, tolerance)
    if incomparable:
        word = "not run at size" if is_other_network else "undecided"
    return NumberVerdict(word, ours, claim, tolerance, incomparable)


def judge_best(
    claim: Claim, values: Sequence[float], seeds: int, *, incomparable: str | None = None
) -> NumberVerdict:
    """The verdict on the best of some seeds that a paper prints, by our best of as many or more; it
    has no interval."""
    assert isinstance(claim.value, int | float)
    # Of more seeds than the paper's the best would be better by their number alone.
    best, tolerance = max(values[:seeds]), tolerance_of(claim)
    word: NumberWord = "undecided"
    if incomparable is None and len(values) >= seeds:
        over = best - claim.value
        word = (
            "reproduced" if abs(over) <= tolerance + ROUNDING else "better" if over > 0 else "worse"
        )
    ours = Interval(best, None, None, min(len(values), seeds))
    return NumberVerdict(word, ours, claim, tolerance, incomparable)


def judge_count(claim: Claim, count: float) -> NumberVerdict:
    """The verdict on a printed number by what is counted, in the unit of the claim; `ours.n` is 0.

    >>> judge_count(find_claim("rem-t9-eff-capsnet-params"), 0.161824).word
    'reproduced'
    """
    assert isinstance(claim.value, int | float)
    unit = _last_digit(claim)
    exact = Interval(count, count, count, 0)
    over = count - claim.value
    # Of 7.58 million, 7.6 are printed rounded and 7.5 cut off.
    is_met = abs(over) <= unit / 2 + ROUNDING or 0 <= over < unit - ROUNDING
    # A network of a size that is not the paper's is no better by being smaller.
    return NumberVerdict("reproduced" if is_met else "otherwise", exact, claim, unit / 2)


def _last_digit(claim: Claim) -> float:
    """What one more in the last digit that is printed comes to."""
    printed = str(claim.value).partition(".")[2].rstrip("0")
    return 10.0 ** -(len(printed) if claim.decimals is None else claim.decimals)


def judge_test(claim: Claim, test: str, *, found: float = 1.0) -> ShownVerdict:
    """The verdict on a claim by a test that passed, which recorded 1 where it shows the claim, -1
    where it refutes it, and 0 where it does neither as its row puts it.

    >>> judge_test(claim, "tests/theory/test_sign.py::test_x")
    """
    if found == 0:
        return ShownVerdict("undecided", test)
    if not claim.states:
        return ShownVerdict("reproduced", test)
    return ShownVerdict("fails" if found < 0 else "holds", test)


def tolerance_of(claim: Claim) -> float:
    """How far our mean may be from a printed number that counts as reproduced."""
    value = claim.value
    assert isinstance(value, int | float)
    if claim.kind in SHARES:
        return TOLERANCE_OF_ERRORS * min(value, 100.0 - value)
    usual = TOLERANCE_OF_OTHERS * abs(value)
    most = most_of(claim)
    if most is None:
        return usual
    # A tenth of what lies just below its bound lets everything through.
    return min(usual, max(TOLERANCE_OF_ERRORS * (most - value), _last_digit(claim) / 2))


def most_of(claim: Claim) -> float | None:
    """What a number of capsules cannot exceed: a length or a rate one, a sum over a layer as many
    as the layer has."""
    if claim.metric in AT_MOST_ONE:
        return 100.0 if claim.unit == "%" else 1.0
    if claim.metric not in AT_MOST_ALL:
        return None
    layers, layer = claim.conditions["capsules_per_layer"], claim.conditions["layer"]
    return float(layers[-1 if layer == "output" else int(layer) - 1])


def is_as_right(accuracies: Sequence[float], printed: float) -> bool:
    """Whether networks make at most 1.25 times the errors of a printed accuracy, in percent, or lie
    no more than two standard errors below it. No more errors are as few, whatever was trained."""
    mean = fmean(accuracies)
    loose = printed - STANDARD_ERRORS * standard_error(accuracies)
    return has_as_few_errors(mean, printed) or mean >= loose - ROUNDING


def has_as_few_errors(accuracy: float, other: float) -> bool:
    """Whether it has at most 1.25 times the errors of another accuracy, in percent."""
    return accuracy >= 100.0 - (1.0 + TOLERANCE_OF_ERRORS) * (100.0 - other) - ROUNDING


def _word(claim: Claim, values: Sequence[float], ours: Interval, tolerance: float) -> NumberWord:
    if ours.n < LEAST_SEEDS or ours.low is None or ours.high is None:
        return "undecided"
    assert isinstance(claim.value, int | float)
    printed, slack = float(claim.value), tolerance + ROUNDING
    above = math.inf if claim.metric in AT_LEAST else printed
    below = -math.inf if claim.metric in AT_MOST else printed
    # Beyond it, by the interval of the mean or by every seed.
    lowest, highest = _extremes(values, ours)
    if lowest > above + slack:
        return "worse" if _is_better_low(claim) else "better"
    if highest < below - slack:
        return "better" if _is_better_low(claim) else "worse"
    apart, error = max(below - ours.mean, ours.mean - above), standard_error(values)
    is_near = apart <= max(slack, STANDARD_ERRORS * error)
    # A mean that is known less well than that shows nothing.
    return "reproduced" if is_near and error <= slack else "undecided"


def _extremes(values: Sequence[float], ours: Interval) -> tuple[float, float]:
    """The greatest lower and the least upper end of two intervals: that of the mean by Student's t,
    and that of the median from the least to the greatest seed, where seeds are enough for it."""
    assert ours.low is not None
    assert ours.high is not None
    if not is_range_enough(len(values), CONFIDENCE):
        return ours.low, ours.high
    return max(ours.low, min(values)), min(ours.high, max(values))


def is_range_enough(n: int, confidence: float) -> bool:
    """Whether the median lies between the least and the greatest of so many values as often: all
    of them are on one side of it once in 2 ** (n - 1) times."""
    return 1 - 2.0 ** (1 - n) >= confidence


def standard_error(values: Sequence[float]) -> float:
    """Take the standard error of the mean, by the deviation of the sample; of one value 0."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _is_better_low(claim: Claim) -> bool:
    return claim.kind in LOWER_IS_BETTER_KINDS or claim.metric in LOWER_IS_BETTER


def word_of(ours: Interval, side: Side, threshold: float, least: int) -> StatementWord:
    """The word for an interval by itself; below `least` seeds nothing is decided."""
    if ours.n < least or ours.low is None or ours.high is None:
        return "undecided"
    low, high = ours.low, ours.high
    if side == "within":
        inside = -threshold <= low and high <= threshold
        outside = low > threshold or high < -threshold
    elif side == "greater":
        inside, outside = low > threshold, high < threshold
    else:
        inside, outside = high < threshold, low > threshold
    return "holds" if inside else "fails" if outside else "undecided"
