"""What the variants of a study of our own gave: a row each, with intervals over its seeds."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torchcaps.study.intervals import Interval, mean_interval
from torchcaps.study.record import Record
from torchcaps_claims.intervals import clipped, scale_of
from torchcaps_claims.judges.evidence import is_about, known_fields
from torchcaps_claims.verdict import LEAST_SEEDS


class NotShown(Exception):
    """What a sentence says is not what records show."""


class Column(NamedTuple):
    """A statistic: the mean over the layers that have it, or over those that `layers` chooses as a
    slice does. A compared column has by how much the statistic lies above that of the base, seed by
    seed."""

    title: str
    statistic: str
    layers: str = ":"
    is_compared: bool = False
    # Rows are told apart by the side of this line on which they lie; if compared, by that of zero.
    line: float | None = None
    # The largest that it can be, where its statistic does not tell.
    most: float | None = None

    @property
    def scale(self) -> tuple[float, float]:
        """The least and the largest value that its statistic can have."""
        low, high = scale_of(self.statistic)
        return low, high if self.most is None else self.most


class Variants(NamedTuple):
    """Records of a study that differ in fields or options. `study` names the study, or the folder
    that holds it, or several of them; "" takes the records of all studies."""

    title: str
    study: str | Sequence[str]
    says: str
    differ_in: Sequence[str]
    columns: Sequence[Column]
    # The values of the base, with which others are compared; those that are not named are None.
    compared_with: Mapping[str, Any] = {}
    # The fields and options that its records have, a frozenset for any of several values.
    where: Mapping[str, Any] = {}


class Row(NamedTuple):
    """A record by its hash, with the values that it differs in."""

    name: str
    record: Record
    values: tuple[Any, ...]

    def link(self, evidence: str) -> str:
        """The record, as seen from a page; `evidence` is where the folder of records lies."""
        return f"[{self.name}]({evidence}/{self.record.study}/{self.name}.json)"


class Section(NamedTuple):
    """A part of a page: a heading, a paragraph, a table."""

    title: str
    says: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Rows:
    """The records of a study in the order of their labels; of several that differ in nothing the
    one of most seeds."""

    def __init__(self, variants: Variants, records: Mapping[str, Record], *, beside: int = 1):
        """`beside`: with how many such studies joint intervals hold together."""
        self.variants, self.beside = variants, beside
        usual = tuple(map(variants.compared_with.get, variants.differ_in))
        studies = [variants.study] if isinstance(variants.study, str) else variants.study
        found: dict[tuple[Any, ...], Row] = {}
        for name, record in sorted(records.items(), key=lambda item: item[1].measured):
            within = any(f"{record.study}/".startswith(f"{each}/") for each in studies)
            if (within or not variants.study) and is_about(record, variants.where):
                values = tuple(map(known_fields(record).get, variants.differ_in))
                found[values] = Row(name, record, values)
        self.all = sorted(found.values(), key=lambda row: ([*map(_said, row.values)], row.name))
        self.base = next((row for row in self.all if row.values == usual), None)

    def column(self, title: str) -> Column:
        """The column of a title."""
        return next(each for each in self.variants.columns if each.title == title)

    def row(self, **chosen: Any) -> Row:
        """The only row that has these values."""
        places = {self.variants.differ_in.index(name): value for name, value in chosen.items()}
        rows = [row for row in self.all if all(row.values[k] == x for k, x in places.items())]
        if len(rows) != 1:
            raise NotShown(f"{chosen} is {len(rows)} variants of {self.variants.title!r}")
        return rows[0]

    def section(self, evidence: str) -> Section | None:
        """The table; nothing without records."""
        rows = []
        for row in self.all:
            record = row.record
            failed = f", and {record.failed} failed" if record.failed else ""
            last = f"{row.link(evidence)}, n = {record.measured}{failed}"
            cells = (self._cell(row, column) for column in self.variants.columns)
            rows.append((*map(_said, row.values), *cells, last))
        columns = (column.title for column in self.variants.columns)
        head = (*self.variants.differ_in, *columns, "record")
        return Section(self.variants.title, self.variants.says, head, rows) if rows else None

    def values(self, row: Row, column: Column) -> dict[int, float]:
        """A column of a row by seed; if compared, of the seeds that the base has too."""
        values = _by_seed(row.record, column)
        if not column.is_compared:
            return values
        base = _by_seed(self.base.record, column) if self.base and self.base is not row else {}
        return {seed: value - base[seed] for seed, value in values.items() if seed in base}

    def interval(self, row: Row, column: Column, confidence: float = 0.95) -> Interval | None:
        """The mean of a column over seeds, no wider than the scale of its statistic; a difference
        no wider than what the interval of the base leaves of the scale."""
        values = [*self.values(row, column).values()]
        if not values:
            return None
        found = mean_interval(values, confidence=confidence)
        low, high = column.scale
        if not column.is_compared:
            return clipped(found, low, high, values=values, confidence=confidence)
        base = self.interval(self.base, column._replace(is_compared=False)) if self.base else None
        if base is None or base.low is None or base.high is None:
            return clipped(found, low - high, high - low)
        return clipped(found, low - base.high, high - base.low)

    def joint(self, row: Row, column: Column) -> Interval | None:
        """Widen `interval` so far that those of all rows hold together; nothing of fewer than
        three seeds."""
        rows = [each for each in self.all if each.record.measured >= LEAST_SEEDS]
        if column.is_compared:
            rows = [each for each in rows if each is not self.base]
        found = self.interval(row, column, 1 - 0.05 / (max(1, len(rows)) * self.beside))
        return found if found is not None and found.n >= LEAST_SEEDS else None

    def side(self, row: Row, column: Column) -> str | None:
        """ "above" or "below" where the joint interval lies on one side of the line of a column."""
        found = self.joint(row, column)
        return None if found is None else side_of(found, column.line or 0.0)

    def _cell(self, row: Row, column: Column) -> str:
        """Bold where a side is certain."""
        text = in_brackets(self.interval(row, column), row.record.measured)
        has_sides = column.is_compared or column.line is not None
        return f"**{text}**" if has_sides and self.side(row, column) else text


def side_of(found: Interval, line: float = 0.0) -> str | None:
    """Say "above" or "below" where an interval lies on one side of a line."""
    if found.low is None or found.high is None:
        return None
    return "above" if found.low > line else "below" if found.high < line else None


def in_brackets(found: Interval | None, measured: int) -> str:
    """An interval in words, and of how many seeds it is where it is of fewer than were measured:
    some have no partner among those of the base."""
    if found is None:
        return ""
    mean, *ends = (None if x is None else f"{x:.4g}" for x in found[:3])
    n = f", n = {found.n}" if found.n < measured else ""
    return f"{mean}{n}" if len(set(ends)) == 1 else f"{mean} [{', '.join(map(str, ends))}]{n}"


def _said(value: Any) -> str:
    """Widths that are all the same by their number."""
    each = str(value).split(",")
    if len(each) > 1 and len(set(each)) == 1:
        return f"{len(each)} × {each[0]}"
    if isinstance(value, float):
        # As many digits as somebody wrote down: 0.8553, and not 0.8553000000000001.
        return str(round(value, 6))
    return "none" if value is None else str(value)


def _by_seed(record: Record, column: Column) -> dict[int, float]:
    """The mean over its layers, of the seeds that have a number of as many as any."""
    chosen = slice(*(int(end) if end else None for end in column.layers.split(":")))
    found = {seed.seed: _of_layers(seed.values, column.statistic, chosen) for seed in record.seeds}
    most = max(map(len, found.values()), default=0)
    return {seed: sum(of) / most for seed, of in found.items() if of and len(of) == most}


def _of_layers(values: Mapping[str, float], statistic: str, chosen: slice) -> Sequence[float]:
    """A number without a layer stands alone."""
    if statistic in values:
        return [values[statistic]]
    name, at, images = statistic.partition("@")
    pattern = re.compile(re.escape(name) + r"\.(\d+)" + re.escape(at + images))
    found = {int(match[1]): x for name, x in values.items() if (match := pattern.fullmatch(name))}
    return [found[number] for number in sorted(found)][chosen]
