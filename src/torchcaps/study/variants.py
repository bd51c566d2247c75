"""What the variants of a study of our own gave: a row each, with intervals over its seeds."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from torchcaps.models import MODELS
from torchcaps.study.intervals import mean_interval
from torchcaps.study.record import Record

__all__ = ["Column", "Variants", "table_of"]


class Column(NamedTuple):
    """A statistic, of all layers that have it, but where `layers` chooses from them."""

    title: str
    statistic: str
    layers: slice = slice(None)


class Variants(NamedTuple):
    """A study of our own by the name of its records, in whose file `vary` names `option`."""

    study: str
    option: str
    says: str
    columns: tuple[Column, ...]


def table_of(variants: Variants, records: Mapping[str, Record], evidence: str) -> Iterator[str]:
    """A table in Markdown, in the order of the values of the option; nothing without records."""
    rows = {name: record for name, record in records.items() if record.study == variants.study}
    if not rows:
        return
    yield f"| {variants.option} | {' | '.join(c.title for c in variants.columns)} | record |"
    yield "|---" * (len(variants.columns) + 2) + "|"
    for name, record in sorted(rows.items(), key=lambda row: str(_value(variants.option, row[1]))):
        cells = [_mean(record, column) for column in variants.columns]
        link = f"[{name}]({evidence}/{record.study}/{name}.json), n = {len(record.seeds)}"
        yield f"| {_value(variants.option, record)} | {' | '.join(cells)} | {link} |"


def _value(option: str, record: Record) -> Any:
    """That of the network itself where nobody wrote it out."""
    recipe = record.recipe
    return recipe["options"].get(option, MODELS[recipe["model"]].options[option])


def _mean(record: Record, column: Column) -> str:
    """Of one value a seed, the mean over its layers."""
    each = [_of_layers(seed.values, column) for seed in record.seeds]
    values = [sum(layers) / len(layers) for layers in each if layers]
    if not values:
        return ""
    found = mean_interval(values)
    ends = "" if found.low is None else f" [{found.low:.3g}, {found.high:.3g}]"
    return f"{found.mean:.3g}{ends}"


def _of_layers(values: Mapping[str, float], column: Column) -> list[float]:
    """A number without a layer stands alone."""
    if column.statistic in values:
        return [values[column.statistic]]
    return _in_order(values, column.statistic)[column.layers]


def _in_order(values: Mapping[str, float], statistic: str) -> list[float]:
    numbers: Iterable[int] = sorted(
        int(name.rpartition(".")[2]) for name in values if name.rpartition(".")[0] == statistic
    )
    return [values[f"{statistic}.{number}"] for number in numbers]
