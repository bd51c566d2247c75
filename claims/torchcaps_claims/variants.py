"""What the variants of a study of our own gave: a row each, with intervals over its seeds."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torchcaps.study.intervals import Interval, mean_interval
from torchcaps.study.record import Record
from torchcaps_claims.judges.evidence import is_about, known_fields
from torchcaps_claims.verdict import LEAST_SEEDS

__all__ = ["Column", "Difference", "Side", "Variants", "about", "base_of", "deaths_of"]
__all__ += ["decision_of", "differences_of", "in_brackets", "interval_of", "lines_of", "sides_of"]

# The title of a column, what a variant differs in, and "above", "below" or "open" (a difference);
# or a title, a name, and "decides".
Side = tuple[str, str, str]

# Dead capsules of a layer, and those that are not.
DEAD, ALIVE = "cds", "capsules_alive"


class Column(NamedTuple):
    """A statistic, of all layers that have it, but where `layers` chooses from them; or by how
    much it lies above that of the variant that others are compared with, seed by seed."""

    title: str
    statistic: str
    layers: slice = slice(None)
    is_compared: bool = False
    # It is said what lies above it and what below; of what is compared, above zero and below.
    line: float | None = None


class Difference(NamedTuple):
    """By how much a statistic of a variant lies above that of the one it is compared with."""

    label: str
    interval: Interval
    side: str | None


class Variants(NamedTuple):
    """A study by the name of its records, or of the folder in which they lie, which differ in
    fields or options; without a name those of all studies."""

    title: str
    study: str
    says: str
    differ_in: tuple[str, ...]
    # The values of the variant that others are compared with.
    compared_with: tuple[Any, ...]
    columns: tuple[Column, ...]
    # The fields and options of the records that it is about, a frozenset for any of several values;
    # all of the study, if none.
    where: Mapping[str, Any] = {}
    # What tells it from another study on one picture.
    short: str = ""


def lines_of(variants: Variants, records: Mapping[str, Record], evidence: str) -> Iterator[str]:
    """A section in Markdown; nothing without records.

    Arguments:
        variants: the study.
        records: all records by their hash.
        evidence: where their folder lies, as seen from the page.
    """
    rows = about(variants, records)
    if not rows:
        return
    yield f"## {variants.title}"
    yield ""
    yield variants.says
    yield ""
    titles = (*variants.differ_in, *(column.title for column in variants.columns), "record")
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    labels = _labelled(variants, rows)
    base = base_of(variants, rows.values())
    for label, name in labels:
        record = rows[name]
        found = [interval_of(record, column, base) for column in variants.columns]
        cells = [in_brackets(interval, record.measured) for interval in found]
        link = f"[{name}]({evidence}/{record.study}/{name}.json), n = {_n(record)}"
        yield f"| {label} | {' | '.join(cells)} | {link} |"
    yield ""
    in_order = [rows[name] for _, name in labels]
    yield from (line for sentence in _compared(variants, in_order) for line in (sentence, ""))
    enough = _enough(in_order)
    for column in variants.columns:
        if column.line is not None:
            decided = _decided_by(variants, column, enough)
            yield from (
                [decided, ""]
                if decided
                else [*_in_words(variants, column, enough, base, column.line), ""]
            )


def decision_of(variants: Variants, records: Mapping[str, Record]) -> str | None:
    """What is decided, in words: the value of a single name that says on which side of its line all
    lie, or which variants lie above and below the one that they are compared with.

    Arguments:
        variants: the study.
        records: all records by their hash.
    """
    rows = _in_order(variants, records)
    enough = _enough(rows)
    found = [_decided_by(variants, x, enough) for x in variants.columns if x.line is not None]
    decided = next(filter(None, found), None)
    return decided or " ".join(_compared(variants, rows)) or None


def sides_of(variants: Variants, records: Mapping[str, Record]) -> set[Side]:
    """What is decided, and which differences are open, for whoever asks for one of it.

    Arguments:
        variants: the study.
        records: all records by their hash.
    """
    enough = _enough(_in_order(variants, records))
    found: set[Side] = set()
    for column in variants.columns:
        if column.line is not None:
            deciding = _deciding(variants, column, enough)
            found |= {(column.title, deciding[0], "decides")} if deciding else set()
            for record in enough:
                interval = interval_of(record, column, None, confidence=1 - 0.05 / len(enough))
                side = _side(interval, column.line)
                label = _differing(variants, record, enough)
                found |= {(column.title, label, side)} if side else set()
    for title, each in differences_of(variants, records):
        side = each.side or ("open" if each.interval.n >= LEAST_SEEDS else None)
        found |= {(title, each.label, side)} if side else set()
    return found


def differences_of(
    variants: Variants, records: Mapping[str, Record], *, beside: int = 1
) -> Iterator[tuple[str, Difference]]:
    """Every variant of three seeds or more beside the one that it is compared with, column by
    column; sides are those of intervals that hold together.

    Arguments:
        variants: the study.
        records: all records by their hash.
        beside: how many studies' intervals are to hold together.
    """
    base, others = _beside(variants, _in_order(variants, records))
    for column in variants.columns:
        for record in others if column.is_compared else ():
            interval = interval_of(record, column, base)
            wider = interval_of(record, column, base, confidence=1 - 0.05 / (len(others) * beside))
            if interval is not None:
                label = _differing(variants, record)
                yield column.title, Difference(label, interval, _side(wider, 0.0))


def deaths_of(variants: Variants, records: Mapping[str, Record]) -> str | None:
    """One sentence: in how many networks no capsule is dead, and how many are in the others; None
    where nobody counted.

    Arguments:
        variants: the study, with a column of dead capsules.
        records: all records by their hash.
    """
    dead = next(x for x in variants.columns if x.statistic.partition("@")[0] == DEAD)
    rows = about(variants, records)
    n_networks, n_whole = 0, 0
    # The variants by what is dead in them.
    others: dict[str, list[str]] = {}
    for _, name in _labelled(variants, rows):
        counts = [count for seed in rows[name].seeds if (count := _dead_of_all(seed.values, dead))]
        some = [count for count in counts if count[0]]
        n_networks, n_whole = n_networks + len(counts), n_whole + len(counts) - len(some)
        if some:
            low, high = min(some)[0], max(some)[0]
            most = f"{low:g}" if low == high else f"{low:g} to {high:g}"
            seeds = "every seed" if some == counts else f"{len(some)} of {len(counts)} seeds"
            says = f"{most} of {some[0][1]:g} in {seeds} with "
            others.setdefault(says, []).append(_named(variants, rows[name]))
    if not n_networks:
        return None
    if not others:
        return f"none in any seed, of {n_networks} networks in all."
    said = (f"{says}{', and with '.join(names)}" for says, names in others.items())
    whole = f"none in {n_whole} of" if n_whole else "some in each of"
    return f"{whole} {n_networks} networks; {'; '.join(said)}."


def _dead_of_all(values: Mapping[str, float], dead: Column) -> tuple[float, float] | None:
    """The dead capsules of all layers, and all capsules."""
    alive = dead._replace(statistic=dead.statistic.replace(DEAD, ALIVE, 1), layers=slice(None))
    counts = [sum(_of_layers(values, each)) for each in (dead._replace(layers=slice(None)), alive)]
    return (counts[0], sum(counts)) if counts[1] or counts[0] else None


def _named(variants: Variants, record: Record) -> str:
    """What a record differs in, name by name."""
    values = zip(variants.differ_in, _values(variants, record), strict=True)
    return ", ".join(f"{name} {_said(value)}" for name, value in values)


def _differing(variants: Variants, record: Record, rows: Sequence[Record] = ()) -> str:
    """What a record differs in from the one that others are compared with, and from any of the
    rows beside it; from these alone where it has the usual values."""
    values = _values(variants, record)
    others = zip(*(_values(variants, each) for each in rows or [record]), strict=True)
    named = zip(variants.differ_in, values, variants.compared_with, others, strict=True)
    telling = [each for each in named if len(rows) < 2 or len(set(map(str, each[3]))) > 1]
    pairs = [each for each in telling if each[1] != each[2]]
    return ", ".join(f"{name} {_said(value)}" for name, value, *_ in pairs or telling)


def _in_order(variants: Variants, records: Mapping[str, Record]) -> list[Record]:
    """The records in the order of their rows."""
    named = about(variants, records)
    return [named[name] for _, name in _labelled(variants, named)]


def about(variants: Variants, records: Mapping[str, Record]) -> dict[str, Record]:
    """The records by their hash; of several that differ in nothing the one of most seeds."""
    found: dict[tuple[Any, ...], str] = {}
    for name, each in sorted(records.items(), key=lambda item: item[1].measured):
        is_of_study = not variants.study or f"{each.study}/".startswith(f"{variants.study}/")
        if is_of_study and is_about(each, variants.where):
            found[_values(variants, each)] = name
    return {name: records[name] for name in found.values()}


def _labelled(variants: Variants, rows: Mapping[str, Record]) -> list[tuple[str, str]]:
    """The label of each record and its name, by the label."""
    return sorted((" | ".join(map(_said, _values(variants, x))), name) for name, x in rows.items())


def _enough(rows: Sequence[Record]) -> list[Record]:
    return [each for each in rows if each.measured >= LEAST_SEEDS]


def _n(record: Record) -> str:
    """The seeds that gave numbers, and how many gave none."""
    return f"{record.measured}{f', and {record.failed} failed' if record.failed else ''}"


def _compared(variants: Variants, rows: Sequence[Record]) -> Iterator[str]:
    """What lies above and below the variant that the others are compared with."""
    base, others = _beside(variants, rows)
    for column in variants.columns:
        if column.is_compared:
            yield from _in_words(variants, column, others, base, 0.0)


def _beside(variants: Variants, rows: Sequence[Record]) -> tuple[Record | None, list[Record]]:
    """The variant that others are compared with, and those with seeds enough."""
    base = base_of(variants, rows)
    return base, [] if base is None else [each for each in _enough(rows) if each is not base]


def _decided_by(variants: Variants, column: Column, rows: Sequence[Record]) -> str | None:
    deciding = _deciding(variants, column, rows)
    if deciding is None:
        return None
    name, side_of = deciding
    each = sorted(f"{side} {column.line or 0:g} with {value}" for value, side in side_of.items())
    others = " or ".join(x for x in variants.differ_in if x != name)
    return (
        f"**{name} alone decides**: {column.title} is {', and '.join(each)}, whatever {others} "
        f"may be (95 % intervals, of all {len(rows)} together)."
    )


def _deciding(
    variants: Variants, column: Column, rows: Sequence[Record]
) -> tuple[str, Mapping[str, str | None]] | None:
    """The only name whose value says on which side of its line every variant lies, and the sides
    by its values."""
    line = column.line or 0.0
    sides = [_side(interval_of(x, column, None, 1 - 0.05 / len(rows)), line) for x in rows]
    if set(sides) != {"above", "below"}:
        return None
    deciding = []
    for place, name in enumerate(variants.differ_in):
        found: dict[Any, list[str | None]] = {}
        for record, side in zip(rows, sides, strict=True):
            found.setdefault(_values(variants, record)[place], []).append(side)
        # A value that one variant has says nothing of the others.
        if all(len(each) > 1 and len(set(each)) == 1 for each in found.values()):
            deciding.append((name, {_said(value): each[0] for value, each in found.items()}))
    return deciding[0] if len(deciding) == 1 else None


def _side(interval: Interval | None, line: float) -> str | None:
    # Of the seeds that a record has some may lack a layer, or their partner.
    if interval is None or interval.n < LEAST_SEEDS:
        return None
    if interval.low is None or interval.high is None:
        return None
    return "above" if interval.low > line else "below" if interval.high < line else None


def _in_words(
    variants: Variants, column: Column, rows: Sequence[Record], base: Record | None, line: float
) -> Iterator[str]:
    """Which variants lie above a line, below it, or neither, by intervals that hold together: the
    more there are, the wider each."""
    named = f"{line:g}" if line else "zero"
    found: dict[str | None, list[str]] = {"above": [], "below": [], None: []}
    for record in rows:
        interval = interval_of(record, column, base, confidence=1 - 0.05 / len(rows))
        if interval is not None and interval.n >= LEAST_SEEDS:
            found[_side(interval, line)].append(_differing(variants, record, rows))
    said = [f"is {side} {named} with {_listed(found[side])}" for side in ("above", "below")]
    said = [each for each in said if not each.endswith(" with ")]
    if said:
        # A symbol such as α stays as it is written.
        first = column.title[0]
        title = (first.upper() if first.isascii() else first) + column.title[1:]
        said = [f"{title} {said[0]}.", *(f"It {each}." for each in said[1:])]
    if found[None]:
        title = "" if said else f" of {column.title}"
        within = f"{named} lies within the interval{title} with {_listed(found[None])}."
        said.append(within[0].upper() + within[1:])
    if said:
        wider = f"s, wider than in the table so that all {len(rows)} hold together"
        yield f"{' '.join(said)} (95 % interval{wider if len(rows) > 1 else ''}.)"


def _listed(labels: Sequence[str]) -> str:
    """Values of one name one after the other, and what differs in several names as it is."""
    values: dict[str, list[str]] = {}
    for label in labels:
        name, _, value = label.partition(" ")
        values.setdefault(label if ", " in label else name, []).append(value)
    return "; ".join(
        label if ", " in label else f"{label} {', '.join(of)}" for label, of in values.items()
    )


def _values(variants: Variants, record: Record) -> tuple[Any, ...]:
    known = known_fields(record)
    return tuple(known.get(name) for name in variants.differ_in)


def _said(value: Any) -> str:
    """Widths that are all the same by their number."""
    each = str(value).split(",")
    if len(each) > 1 and len(set(each)) == 1:
        return f"{len(each)} × {each[0]}"
    return "none" if value is None else str(value)


def base_of(variants: Variants, rows: Iterable[Record]) -> Record | None:
    return next((each for each in rows if _values(variants, each) == variants.compared_with), None)


def interval_of(
    record: Record, column: Column, base: Record | None, confidence: float = 0.95
) -> Interval | None:
    values = _by_seed(record, column)
    if column.is_compared:
        of_base = {} if base is None or record is base else _by_seed(base, column)
        values = {seed: x - of_base[seed] for seed, x in values.items() if seed in of_base}
    return mean_interval([*values.values()], confidence=confidence) if values else None


def _by_seed(record: Record, column: Column) -> dict[int, float]:
    """The mean over its layers, of the seeds that have a number of as many as any."""
    each = {seed.seed: _of_layers(seed.values, column) for seed in record.seeds}
    most = max((len(layers) for layers in each.values()), default=0)
    return {seed: sum(of) / most for seed, of in each.items() if of and len(of) == most}


def _of_layers(values: Mapping[str, float], column: Column) -> Sequence[float]:
    """A number without a layer stands alone."""
    if column.statistic in values:
        return [values[column.statistic]]
    name, at, images = column.statistic.partition("@")
    pattern = re.compile(re.escape(name) + r"\.(\d+)" + re.escape(at + images))
    found = {int(match[1]): x for name, x in values.items() if (match := pattern.fullmatch(name))}
    return [found[number] for number in sorted(found)][column.layers]


def in_brackets(found: Interval | None, measured: int) -> str:
    """An interval in words, and of how many seeds it is where it is of fewer than were measured:
    some have no partner among those of the variant that it is compared with."""
    if found is None:
        return ""
    mean, *ends = (None if x is None else f"{x:.4g}" for x in found[:3])
    n = f", n = {found.n}" if found.n < measured else ""
    return f"{mean}{n}" if len(set(ends)) == 1 else f"{mean} [{', '.join(map(str, ends))}]{n}"
