"""What the variants of a study of our own gave: a row each, with intervals over its seeds."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torchcaps.study.intervals import Interval, mean_interval
from torchcaps.study.judges.evidence import Values, known_fields
from torchcaps.study.record import Record
from torchcaps.study.verdict import LEAST_SEEDS

__all__ = ["Column", "Variants", "lines_of"]


class Column(NamedTuple):
    """A statistic, of all layers that have it, but where `layers` chooses from them; or by how
    much it lies above that of the variant that others are compared with, seed by seed."""

    title: str
    statistic: str
    layers: slice = slice(None)
    is_compared: bool = False


class Variants(NamedTuple):
    """A study of our own by the name of its records, which differ in fields or options."""

    title: str
    study: str
    says: str
    differ_in: tuple[str, ...]
    # The values of the variant that others are compared with.
    compared_with: tuple[Any, ...]
    columns: tuple[Column, ...]


def lines_of(variants: Variants, records: Mapping[str, Record], evidence: str) -> Iterator[str]:
    """A section in Markdown; nothing without records.

    Arguments:
        variants: the study.
        records: all records by their hash.
        evidence: where their folder lies, as seen from the page.
    """
    rows = {name: record for name, record in records.items() if record.study == variants.study}
    if not rows:
        return
    yield f"## {variants.title}"
    yield ""
    yield variants.says
    yield ""
    titles = (*variants.differ_in, *(column.title for column in variants.columns), "record")
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    told = sorted((" | ".join(map(_said, _values(variants, x))), name) for name, x in rows.items())
    base = _base(variants, rows)
    for label, name in told:
        record = rows[name]
        cells = [_text(_interval(record, column, base)) for column in variants.columns]
        link = f"[{name}]({evidence}/{record.study}/{name}.json), n = {len(record.seeds)}"
        yield f"| {label} | {' | '.join(cells)} | {link} |"
    yield ""
    others = [rows[name] for _, name in told if rows[name] is not base]
    enough = [record for record in others if len(record.seeds) >= LEAST_SEEDS]
    for column in variants.columns:
        if column.is_compared and base is not None and enough:
            yield from _in_words(variants, column, enough, base)


def _in_words(
    variants: Variants, column: Column, rows: Sequence[Record], base: Record
) -> Iterator[str]:
    """Which variants lie above the base, below it, or neither, by intervals that hold together:
    the more are compared, the wider each."""
    found: dict[str, list[str]] = {"above zero": [], "below zero": [], "": []}
    for record in rows:
        interval = _interval(record, column, base, confidence=1 - 0.05 / len(rows))
        if interval is None or interval.low is None or interval.high is None:
            continue
        word = "above zero" if interval.low > 0 else "below zero" if interval.high < 0 else ""
        named = zip(variants.differ_in, _values(variants, record), strict=True)
        pairs = zip(named, variants.compared_with, strict=True)
        found[word].append(", ".join(f"{n} {_said(x)}" for (n, x), usual in pairs if x != usual))
    open_ = found.pop("")
    said = [f"it is {word} with {'; '.join(labels)}" for word, labels in found.items() if labels]
    said += [f"zero lies within the interval with {'; '.join(open_)}"] if open_ else []
    if said:
        together = f", of all {len(rows)} together" if len(rows) > 1 else ""
        yield f"{column.title.capitalize()}, by 95 % intervals{together}: {', '.join(said)}."
        yield ""


def _values(variants: Variants, record: Record) -> tuple[Any, ...]:
    known = known_fields(record)
    return tuple(known.get(name) for name in variants.differ_in)


def _said(value: Any) -> str:
    return "none" if value is None else str(value)


def _base(variants: Variants, rows: Mapping[str, Record]) -> Record | None:
    return next(
        (each for each in rows.values() if _values(variants, each) == variants.compared_with), None
    )


def _interval(
    record: Record, column: Column, base: Record | None, confidence: float = 0.95
) -> Interval | None:
    values = _by_seed(record, column)
    if column.is_compared:
        of_base = {} if base is None or record is base else _by_seed(base, column)
        values = {seed: x - of_base[seed] for seed, x in values.items() if seed in of_base}
    return mean_interval([*values.values()], confidence=confidence) if values else None


def _by_seed(record: Record, column: Column) -> Values:
    """The mean over its layers."""
    each = {seed.seed: _of_layers(seed.values, column) for seed in record.seeds}
    return {seed: sum(layers) / len(layers) for seed, layers in each.items() if layers}


def _of_layers(values: Mapping[str, float], column: Column) -> Sequence[float]:
    """A number without a layer stands alone."""
    if column.statistic in values:
        return [values[column.statistic]]
    pattern = re.compile(re.escape(column.statistic) + r"\.(\d+)")
    found = {int(match[1]): x for name, x in values.items() if (match := pattern.fullmatch(name))}
    return [found[number] for number in sorted(found)][column.layers]


def _text(found: Interval | None) -> str:
    if found is None:
        return ""
    mean, *ends = (None if x is None else f"{x:.4g}" for x in found[:3])
    return f"{mean}" if len(set(ends)) == 1 else f"{mean} [{', '.join(map(str, ends))}]"
