"""What networks from other first weights say of a verdict that rests on a default of ours.

The rule is that of studies/initial-scales.toml, which was written before any of them was run. It
counts only scales that learn, and waits until every scale of the study was run.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torchcaps.study.record import Record
from torchcaps_claims.verdict import NumberVerdict, StatementVerdict

STUDY, OPTION = "initial-scales", "weight_std"
# The default of rows that it speaks of.
FIRST_WEIGHTS = "weights start from N(0, 1); the paper does not say from what"
SCALES = (0.1, 0.2, 0.3, 0.5)
# A scale learns where so many test images are right, in percent and on average over its seeds.
LEARNS = 95.0
# As many scales bear a verdict out, of so many seeds each.
LEAST, SEEDS = 2, 3
SIDES = ("better", "worse", "holds", "fails")


class Start(NamedTuple):
    """A scale of the first weights, and what a claim would come to if it were our default."""

    scale: float
    # The hash of its record.
    name: str
    record: Record
    accuracy: float
    verdict: NumberVerdict | StatementVerdict | None

    @property
    def learns(self) -> bool:
        return self.accuracy >= LEARNS

    @property
    def word(self) -> str:
        return "undecided" if self.verdict is None else self.verdict.word

    def text(self) -> str:
        """What its networks came to, in a few words."""
        if not self.learns:
            return f"does not learn ({self.accuracy:.1f} %)"
        if self.verdict is None:
            return "not measured"
        found = self.verdict.ours
        ends = "" if found.low is None else f" [{found.low:.4g}, {found.high:.4g}]"
        return f"{self.word}, {found.mean:.4g}{ends}"


def as_default(record: Record) -> Record:
    """The record as if its network began at our default, which is how judges look for it."""
    options = {k: v for k, v in record.recipe["options"].items() if k != OPTION}
    return record.model_copy(update={"recipe": {**record.recipe, "options": options}})


def bear_out(word: str, starts: Sequence[Start]) -> bool:
    """Whether enough scales learn, and the claim comes to this word at each of them."""
    words = [each.word for each in _that_count(starts)]
    return word in SIDES and len(words) >= LEAST and set(words) == {word}


def contradict(word: str, starts: Sequence[Start]) -> Start | None:
    """The first scale at which the claim comes out otherwise. What is reproduced from our default
    alone is no more the paper's than what is not."""
    others = (each for each in _that_count(starts) if each.word not in (word, "undecided"))
    return next(others, None) if word in (*SIDES, "reproduced") else None


def _that_count(starts: Sequence[Start]) -> list[Start]:
    is_whole = {each.scale for each in starts} == set(SCALES)
    return [each for each in starts if each.learns] if is_whole else []
