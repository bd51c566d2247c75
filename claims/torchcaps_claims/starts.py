"""What networks say that began otherwise, or route otherwise, of a verdict that rests on a default
of ours.

The rules are those of studies/initial-scales.toml and studies/other-iterations.toml, and count only
choices that learn, once every choice of the study was run. Each was written before its networks
were trained; the second says what was changed since.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torchcaps.study.record import Record
from torchcaps_claims.intervals import clipped
from torchcaps_claims.verdict import NumberVerdict, StatementVerdict

# Choices learn where so many test images are right, in percent and on average over their seeds.
LEARNS = 95.0
# A number may be borne out by choices of so many seeds each.
SEEDS = 3
SIDES = ("better", "worse", "holds", "fails")


class Varied(NamedTuple):
    """A choice that the paper leaves open, and the study of ours that makes it otherwise."""

    study: str
    option: str
    choices: tuple[float, ...]
    # As many of them must learn to bear a verdict out.
    least: int
    # The default as rows name it.
    default: str
    # What a verdict depends on, our choice and another, in a sentence.
    choice: str
    ours: str
    other: str
    heading: str


FIRST_WEIGHTS = Varied(
    "initial-scales",
    "weight_std",
    (0.1, 0.2, 0.3, 0.5),
    2,
    "weights start from N(0, 1); the paper does not say from what",
    "how weights start",
    "from N(0, 1)",
    "from N(0, {:g}²)",
    "From other first weights",
)
ITERATIONS = Varied(
    "other-iterations",
    "iterations",
    (2, 4, 5),
    3,
    "how many iterations route: ours are 3",
    "how many iterations route",
    "with 3 iterations",
    "with {:g} iterations",
    "With other iterations",
)
VARIED = (FIRST_WEIGHTS, ITERATIONS)


class Start(NamedTuple):
    """Another choice, and what a claim would come to if it were our default."""

    of: Varied
    choice: float
    # The hash of its record.
    name: str
    record: Record
    accuracy: float
    verdict: NumberVerdict | StatementVerdict | None

    @property
    def learns(self) -> bool:
        return self.accuracy >= LEARNS

    @property
    def said(self) -> str:
        return self.of.other.format(self.choice)

    @property
    def word(self) -> str:
        return "undecided" if self.verdict is None else self.verdict.word

    def text(self, low: float = -math.inf, high: float = math.inf) -> str:
        """What its networks came to, in a few words; `low` and `high` are the ends of its scale."""
        if not self.learns:
            return f"does not learn ({self.accuracy:.1f} %)"
        if self.verdict is None:
            return "not measured"
        found = clipped(self.verdict.ours, low, high)
        ends = "" if found.low is None else f" [{found.low:.4g}, {found.high:.4g}]"
        return f"{self.word}, {found.mean:.4g}{ends}"


def as_default(record: Record, of: Varied) -> Record:
    """The record as if its network had our default, which is how judges look for it."""
    options = {k: v for k, v in record.recipe["options"].items() if k != of.option}
    return record.model_copy(update={"recipe": {**record.recipe, "options": options}})


def are_varied(starts: Sequence[Start], default: str) -> bool:
    """Whether each choice of ours that a row names was varied, and enough others learn."""
    varied = _named_in(default)
    enough = all(len(_that_count(starts, of)) >= of.least for of in varied)
    return len(varied) == len(default.split("; nor ")) and enough


def bear_out(word: str, starts: Sequence[Start], default: str) -> bool:
    """Whether all were varied, and the claim comes to this word at every other choice."""
    words = {each.word for of in _named_in(default) for each in _that_count(starts, of)}
    return word in SIDES and are_varied(starts, default) and words == {word}


def contradict(word: str, starts: Sequence[Start]) -> Start | None:
    """The first choice at which the claim comes out otherwise. What is reproduced from our default
    alone is no more the paper's than what is not."""
    count = [each for of in VARIED for each in _that_count(starts, of)]
    others = (each for each in count if each.word not in (word, "undecided"))
    return next(others, None) if word in (*SIDES, "reproduced") else None


def _named_in(default: str) -> list[Varied]:
    return [of for of in VARIED if of.default in default.split("; nor ")]


def _that_count(starts: Sequence[Start], of: Varied) -> list[Start]:
    of_it = [each for each in starts if each.of is of]
    is_whole = {each.choice for each in of_it} == set(of.choices)
    return [each for each in of_it if each.learns] if is_whole else []
