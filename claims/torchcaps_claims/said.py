"""The numbers of an answer, out of records: a sentence is only printed where they show it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import jinja2

from torchcaps.study.intervals import Interval
from torchcaps.study.record import Record
from torchcaps_claims.asked import FAMILIES, STUDIES, Family
from torchcaps_claims.claim import find_claim
from torchcaps_claims.variants import NotShown, Rows, side_of

# A network that routes beside its twin.
Pair = tuple[Family, Rows]


def pairs_of(families: Sequence[Family], records: Mapping[str, Record]) -> list[Pair]:
    """The networks that share three seeds or more with their twins; their joint intervals hold
    together for all of them."""

    def there(rows: Rows) -> bool:
        return len(rows.all) == 2 and rows.base is not None and gain_of(rows) is not None

    found = [(each, Rows(each.variants, records)) for each in families]
    found = [(family, rows) for family, rows in found if there(rows)]
    return [(family, Rows(family.variants, records, beside=len(found))) for family, _ in found]


def gain_of(rows: Rows, *, alone: bool = False) -> Interval | None:
    """By how many points the routed one of two lies above its twin, with its joint interval, or
    alone with its own."""
    (routed,) = (row for row in rows.all if row is not rows.base)
    return (rows.interval if alone else rows.joint)(routed, rows.variants.columns[0])


class Numbers:
    """What the paragraphs of questions.toml may ask for."""

    def __init__(self, records: Mapping[str, Record]):
        self.studies = {name: Rows(variants, records) for name, variants in STUDIES.items()}
        self.pairs = {family.network: rows for family, rows in pairs_of(FAMILIES, records)}

    def said(self, paragraphs: Sequence[str]) -> list[str]:
        """The paragraphs that records show, with their numbers."""
        words = {name: getattr(self, name) for name in vars(Numbers) if not name.startswith("_")}
        environment = jinja2.Environment(undefined=jinja2.StrictUndefined, finalize=number)
        found = []
        for text in paragraphs:
            with suppress(NotShown):
                found.append(environment.from_string(text, words).render())
        return found

    def gain(self, network: str, side: str) -> str:
        """What routing gains in a network, where the joint interval lies on this side of zero."""
        rows = self.pairs.get(network)
        found = gain_of(rows) if rows is not None else None
        if found is None or side_of(found) != side:
            raise NotShown(f"that routing in {network} gains a number {side} zero")
        return interval(found)

    def open_gains(self) -> list[float]:
        """By how many points at most networks differ whose joint interval has both signs."""
        found = filter(None, map(gain_of, self.pairs.values()))
        return [abs(each.mean) for each in found if side_of(each) is None]

    def open_but_for_itself(self) -> list[str]:
        """The networks whose joint interval has both signs and whose own has one, with it."""
        found = []
        for network, rows in self.pairs.items():
            joint, own = gain_of(rows), gain_of(rows, alone=True)
            if joint and own and side_of(joint) is None and side_of(own):
                found.append(f"{network} {interval(own)}")
        return found

    def beside(self, study: str, column: str, digits: int = 1, **chosen: Any) -> str:
        """The mean of the base, of the seeds that it shares with a row."""
        rows = self.studies[study]
        seeds = self._row(study, column, chosen)
        if rows.base is None:
            raise NotShown(f"the base of {study}")
        base = rows.values(rows.base, rows.column(column))
        found = [base[seed] for seed in seeds if seed in base]
        if not found:
            raise NotShown(f"{column} of the base of {study}")
        return number(sum(found) / len(found), digits)

    def mean(self, study: str, column: str, digits: int = 1, **chosen: Any) -> str:
        """The mean of a column over seeds."""
        found = self._row(study, column, chosen).values()
        return number(sum(found) / len(found), digits)

    def effect(
        self, study: str, column: str, side: str | None = None, digits: int = 1, **chosen: Any
    ) -> str:
        """The mean with its own interval, as tables and findings have it. Where a side is asked
        for, "above", "below" or "open", the joint interval must lie on it too, and what is open
        must be so by either."""
        rows = self.studies[study]
        of, row = rows.column(column), rows.row(**chosen)
        found = rows.interval(row, of)
        joint = rows.joint(row, of) if side else found
        sides = {side_of(x, of.line or 0.0) or "open" for x in (found, joint) if x is not None}
        if found is None or joint is None or (side and sides != {side}):
            raise NotShown(f"{column} of {chosen} in {study} being {side}")
        return interval(found, digits)

    def zero(self, study: str, column: str, **chosen: Any) -> str:
        """The word for a number that is zero in every seed; of a list each value is asked for."""
        many = [name for name, value in chosen.items() if isinstance(value, list)]
        for values in product(*(chosen[name] for name in many)):
            one = {**chosen, **dict(zip(many, values, strict=True))}
            if any(self._row(study, column, one).values()):
                raise NotShown(f"{column} of {one} in {study} being zero")
        return "none"

    def seeds(self, study: str, column: str, **chosen: Any) -> list[float]:
        """A number a seed, from the lowest."""
        return sorted(self._row(study, column, chosen).values())

    def listed(self, study: str, column: str, digits: int = 1, **chosen: Any) -> str:
        """Write the numbers of `seeds` in words."""
        *others, last = (number(each, digits) for each in self.seeds(study, column, **chosen))
        return f"{', '.join(others)} and {last}"

    def printed(self, claim: str) -> float:
        """What a paper prints."""
        value = find_claim(claim).value
        assert isinstance(value, int | float)
        return value

    def _row(self, study: str, column: str, chosen: Mapping[str, Any]) -> dict[int, float]:
        rows = self.studies[study]
        found = rows.values(rows.row(**chosen), rows.column(column))
        if not found:
            raise NotShown(f"{column} of {chosen} in {study}")
        return found


def number(value: object, digits: int = 1) -> str:
    """A number as prose has it; what is none stays."""
    if not isinstance(value, float):
        return str(value)
    # What rounding leaves of a small number has no sign.
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def interval(found: Interval, digits: int = 1) -> str:
    """A mean with its interval as prose has it."""
    mean, low, high = (number(each, digits) for each in found[:3])
    return mean if found.low == found.high else f"{mean} [{low}, {high}]"
