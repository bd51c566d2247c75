"""What the variants of a study of our own gave: a row each, with intervals over its seeds."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torchcaps.study.intervals import Interval, mean_interval
from torchcaps.study.record import Record
from torchcaps_claims.judges.evidence import is_about, known_fields
from torchcaps_claims.verdict import LEAST_SEEDS

# The title of a column, what a variant differs in, and "above", "below" or "open" (a difference);
# or a title, a name, and "decides".
Side = tuple[str, str, str]

# Dead capsules of a layer, and those that are not.
DEAD, ALIVE = "cds", "capsules_alive"


class Column(NamedTuple):
    """A statistic, of all layers that have it, but where `layers` chooses from them as a slice
    does; or by how much it lies above that of the variant that others are compared with, seed by
    seed."""

    title: str
    statistic: str
    layers: str = ":"
    is_compared: bool = False
    # It is said what lies above it and what below; of what is compared, above zero and below.
    line: float | None = None


class Variants(NamedTuple):
    """A study by the name of its records, or of the folder in which they lie, which differ in
    fields or options; without a name those of all studies."""

    title: str
    study: str
    says: str
    differ_in: Sequence[str]
    columns: Sequence[Column]
    # The values of the variant that others are compared with; those that it does not name are None.
    compared_with: Mapping[str, Any] = {}
    # The fields and options of the records that it is about, a frozenset for any of several values;
    # all of the study, if none.
    where: Mapping[str, Any] = {}
    # What tells it from another study on one picture.
    short: str = ""


class Difference(NamedTuple):
    """By how much a statistic of a variant lies above that of the one it is compared with."""

    label: str
    interval: Interval
    side: str | None


class Section(NamedTuple):
    """A part of a page: a table, and sentences below it."""

    title: str
    says: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    sentences: Sequence[str]


class Row(NamedTuple):
    """A record by its hash, with the values that it differs in."""

    name: str
    record: Record
    values: tuple[Any, ...]

    def link(self, evidence: str) -> str:
        """The record, as seen from a page; `evidence` is where the folder of records lies."""
        return f"[{self.name}]({evidence}/{self.record.study}/{self.name}.json)"


class Rows:
    """The records of a study in the order of their labels; of several that differ in nothing the
    one of most seeds."""

    def __init__(self, variants: Variants, records: Mapping[str, Record]):
        self.variants = variants
        self.usual = tuple(map(variants.compared_with.get, variants.differ_in))
        found: dict[tuple[Any, ...], Row] = {}
        for name, record in sorted(records.items(), key=lambda item: item[1].measured):
            within = f"{record.study}/".startswith(f"{variants.study}/")
            if (within or not variants.study) and is_about(record, variants.where):
                values = tuple(map(known_fields(record).get, variants.differ_in))
                found[values] = Row(name, record, values)
        self.all = sorted(found.values(), key=lambda row: ([*map(_said, row.values)], row.name))
        self.base = next((row for row in self.all if row.values == self.usual), None)

    def section(self, evidence: str) -> Section | None:
        """The table and what it says in words; nothing without records."""
        variants, rows = self.variants, []
        for row in self.all:
            record = row.record
            cells = [in_brackets(self.interval(row, x), record.measured) for x in variants.columns]
            failed = f", and {record.failed} failed" if record.failed else ""
            last = f"{row.link(evidence)}, n = {record.measured}{failed}"
            rows.append((*map(_said, row.values), *cells, last))
        sentences = [*self._compared()]
        for column in variants.columns:
            if column.line is not None:
                decided = self._decided_by(column)
                sentences += [decided] if decided else self._in_words(column)
        head = (*variants.differ_in, *(column.title for column in variants.columns), "record")
        return Section(variants.title, variants.says, head, rows, sentences) if rows else None

    def decision(self) -> str | None:
        """What is decided, in words: the value of a single name that says on which side of its line
        all lie, or which variants lie above and below the one that they are compared with."""
        found = (self._decided_by(each) for each in self.variants.columns if each.line is not None)
        return next(filter(None, found), None) or " ".join(self._compared()) or None

    def sides(self) -> set[Side]:
        """What is decided, and which differences are open, for whoever asks for one of it."""
        found = {
            (title, each.label, each.side or "open")
            for title, each in self.differences()
            if each.interval.n >= LEAST_SEEDS
        }
        for column in self.variants.columns:
            if column.line is not None:
                sided = [(row, side) for row, _, side in self._sided(column)]
                rows = [row for row, _ in sided]
                found |= {(column.title, self._differing(x, rows), s) for x, s in sided if s}
                if deciding := self._deciding(column):
                    found.add((column.title, deciding[0], "decides"))
        return found

    def differences(self, *, beside: int = 1) -> Iterator[tuple[str, Difference]]:
        """Every variant of three seeds or more beside the one that it is compared with, column by
        column; sides are those of intervals that hold together, with those of as many studies as
        `beside` says."""
        for column in self.variants.columns:
            for row, _, side in self._sided(column, beside) if column.is_compared else ():
                interval = self.interval(row, column)
                if interval is not None:
                    yield column.title, Difference(self._differing(row), interval, side)

    def deaths(self) -> str | None:
        """One sentence: in how many networks no capsule is dead, and how many are in the others;
        None where nobody counted."""
        dead = next(x for x in self.variants.columns if x.statistic.partition("@")[0] == DEAD)
        n_networks, n_whole = 0, 0
        # The variants by what is dead in them.
        others: dict[str, list[str]] = {}
        for row in self.all:
            seeds = [_dead_of_all(seed.values, dead) for seed in row.record.seeds]
            counts = [each for each in seeds if each[1]]
            some = [each for each in counts if each[0]]
            n_networks, n_whole = n_networks + len(counts), n_whole + len(counts) - len(some)
            if some:
                low, high = min(some)[0], max(some)[0]
                most = f"{low:g}" if low == high else f"{low:g} to {high:g}"
                in_seeds = "every seed" if some == counts else f"{len(some)} of {len(counts)} seeds"
                named = zip(self.variants.differ_in, map(_said, row.values), strict=True)
                says = f"{most} of {some[0][1]:g} in {in_seeds} with "
                others.setdefault(says, []).append(", ".join(map(" ".join, named)))
        if not n_networks:
            return None
        if not others:
            return f"none in any seed, of {n_networks} networks in all."
        said = (f"{says}{', and with '.join(names)}" for says, names in others.items())
        whole = f"none in {n_whole} of" if n_whole else "some in each of"
        return f"{whole} {n_networks} networks; {'; '.join(said)}."

    def interval(self, row: Row, column: Column, confidence: float = 0.95) -> Interval | None:
        """The mean of a column over the seeds of a row, or those that it shares with its base."""
        values = _by_seed(row.record, column)
        if column.is_compared:
            base = _by_seed(self.base.record, column) if self.base and self.base is not row else {}
            values = {seed: x - base[seed] for seed, x in values.items() if seed in base}
        return mean_interval([*values.values()], confidence=confidence) if values else None

    def _sided(
        self, column: Column, beside: int = 1
    ) -> Iterator[tuple[Row, Interval | None, str | None]]:
        """Every row of three seeds or more, but of what is compared the base, with its side of a
        line, by intervals that hold together: the more there are, the wider each."""
        rows = [row for row in self.all if row.record.measured >= LEAST_SEEDS]
        if column.is_compared:
            rows = [row for row in rows if row is not self.base] if self.base else []
        line = column.line or 0.0
        for row in rows:
            found = self.interval(row, column, 1 - 0.05 / (len(rows) * beside))
            # Of the seeds that a record has some may lack a layer, or their partner.
            if found is None or found.n < LEAST_SEEDS or found.low is None or found.high is None:
                yield row, found, None
            else:
                side = "above" if found.low > line else "below" if found.high < line else None
                yield row, found, side

    def _compared(self) -> Iterator[str]:
        """What lies above and below the variant that the others are compared with."""
        for column in self.variants.columns:
            if column.is_compared:
                yield from self._in_words(column)

    def _in_words(self, column: Column) -> Iterator[str]:
        """Which variants lie above a line, below it, or neither."""
        line = f"{column.line:g}" if column.line else "zero"
        found: dict[str | None, list[str]] = {"above": [], "below": [], None: []}
        sided = [*self._sided(column)]
        rows = [row for row, *_ in sided]
        for row, interval, side in sided:
            if interval is not None and interval.n >= LEAST_SEEDS:
                found[side].append(self._differing(row, rows))
        said = [f"is {s} {line} with {_by_name(found[s])}" for s in ("above", "below") if found[s]]
        if said:
            # A symbol such as α stays as it is written.
            first = column.title[0]
            title = (first.upper() if first.isascii() else first) + column.title[1:]
            said = [f"{title} {said[0]}.", *(f"It {each}." for each in said[1:])]
        if found[None]:
            title = "" if said else f" of {column.title}"
            within = f"{line} lies within the interval{title} with {_by_name(found[None])}."
            said.append(within[0].upper() + within[1:])
        if said:
            wider = f"s, wider than in the table so that all {len(rows)} hold together"
            yield f"{' '.join(said)} (95 % interval{wider if len(rows) > 1 else ''}.)"

    def _decided_by(self, column: Column) -> str | None:
        deciding = self._deciding(column)
        if deciding is None:
            return None
        name, sides = deciding
        each = sorted(f"{side} {column.line or 0:g} with {value}" for value, side in sides.items())
        others = " or ".join(x for x in self.variants.differ_in if x != name)
        return (
            f"**{name} alone decides**: {column.title} is {', and '.join(each)}, whatever {others} "
            f"may be (95 % intervals, of all {len([*self._sided(column)])} together)."
        )

    def _deciding(self, column: Column) -> tuple[str, Mapping[str, str | None]] | None:
        """The only name whose value says on which side of its line every variant lies, and the
        sides by its values."""
        sided = [(row.values, side) for row, _, side in self._sided(column)]
        if {side for _, side in sided} != {"above", "below"}:
            return None
        deciding = []
        for place, name in enumerate(self.variants.differ_in):
            found: dict[Any, list[str | None]] = {}
            for values, side in sided:
                found.setdefault(values[place], []).append(side)
            # A value that one variant has says nothing of the others.
            if all(len(each) > 1 and len(set(each)) == 1 for each in found.values()):
                deciding.append((name, {_said(value): each[0] for value, each in found.items()}))
        return deciding[0] if len(deciding) == 1 else None

    def _differing(self, row: Row, rows: Sequence[Row] = ()) -> str:
        """What a row differs in from the one that others are compared with, and from any of the
        rows beside it; from these alone where it has the usual values."""
        beside = zip(*(each.values for each in rows or [row]), strict=True)
        named = zip(self.variants.differ_in, row.values, self.usual, beside, strict=True)
        telling = [each for each in named if len(rows) < 2 or len(set(map(str, each[3]))) > 1]
        pairs = [each for each in telling if each[1] != each[2]]
        return ", ".join(f"{name} {_said(value)}" for name, value, *_ in pairs or telling)


def in_brackets(found: Interval | None, measured: int) -> str:
    """An interval in words, and of how many seeds it is where it is of fewer than were measured:
    some have no partner among those of the variant that it is compared with."""
    if found is None:
        return ""
    mean, *ends = (None if x is None else f"{x:.4g}" for x in found[:3])
    n = f", n = {found.n}" if found.n < measured else ""
    return f"{mean}{n}" if len(set(ends)) == 1 else f"{mean} [{', '.join(map(str, ends))}]{n}"


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence, the last after "and"."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _by_name(labels: Sequence[str]) -> str:
    """Values of one name one after the other, and what differs in several names as it is."""
    values: dict[str, list[str]] = {}
    for label in labels:
        name, _, value = label.partition(" ")
        values.setdefault(label if ", " in label else name, []).append(value)
    return "; ".join(
        label if ", " in label else f"{label} {', '.join(of)}" for label, of in values.items()
    )


def _said(value: Any) -> str:
    """Widths that are all the same by their number."""
    each = str(value).split(",")
    if len(each) > 1 and len(set(each)) == 1:
        return f"{len(each)} × {each[0]}"
    return "none" if value is None else str(value)


def _dead_of_all(values: Mapping[str, float], dead: Column) -> tuple[float, float]:
    """The dead capsules of all layers, and all capsules."""
    n_dead, n_alive = (
        sum(_of_layers(values, dead.statistic.replace(DEAD, name, 1))) for name in (DEAD, ALIVE)
    )
    return n_dead, n_dead + n_alive


def _by_seed(record: Record, column: Column) -> dict[int, float]:
    """The mean over its layers, of the seeds that have a number of as many as any."""
    chosen = slice(*(int(end) if end else None for end in column.layers.split(":")))
    found = {seed.seed: _of_layers(seed.values, column.statistic, chosen) for seed in record.seeds}
    most = max(map(len, found.values()), default=0)
    return {seed: sum(of) / most for seed, of in found.items() if of and len(of) == most}


def _of_layers(
    values: Mapping[str, float], statistic: str, chosen: slice = slice(None)
) -> Sequence[float]:
    """A number without a layer stands alone."""
    if statistic in values:
        return [values[statistic]]
    name, at, images = statistic.partition("@")
    pattern = re.compile(re.escape(name) + r"\.(\d+)" + re.escape(at + images))
    found = {int(match[1]): x for name, x in values.items() if (match := pattern.fullmatch(name))}
    return [found[number] for number in sorted(found)][chosen]
