"""What measurements found, for people: a table of each kind of row, and what its columns say."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from io import StringIO
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchcaps._printable import printable
from torchcaps.analysis.result import Result, quantities, row_of

# The longest list that is told; --json has all of every list.
MOST_TOLD = 20
# No line is as long.
WIDEST = 100_000


def lines_of(result: Result, *, class_names: Sequence[str] = ()) -> Iterator[str]:
    """Say what a measurement found: of all images first, then its tables, with names of classes."""
    numbers = json.loads(result.to_json())
    explained = quantities(type(result))
    plain: dict[str, str] = {}
    said: dict[str, str] = {}
    tables: dict[tuple[type, str], list[dict[str, Any]]] = {}
    for field in fields(result):  # type: ignore[arg-type]
        value, row = numbers[field.name], row_of(field)
        if row is not None:
            # Rows that stand alone share a table, as the answers and the classes of calibration do.
            table = field.name if isinstance(value, list) else ""
            tables.setdefault((row, table), []).extend([value] if table == "" else value)
        elif _is_told(field.name, value):
            (said if field.name in explained else plain)[field.name] = _told(value)
    if plain:
        yield "  " + ", ".join(f"{name} {value}" for name, value in plain.items())
    yield from _explained("  ", explained, said)
    for number, ((row, table), rows) in enumerate(tables.items(), 1):
        columns = _columns(rows, class_names if table == "classes" else ())
        if columns:
            yield ""
            yield from aligned(columns)
        # Two tables of one kind are explained once.
        if columns and row not in [kind for kind, _ in [*tables][number:]]:
            yield from _explained("      ", quantities(row), dict.fromkeys(columns, ""))


def _columns(rows: Sequence[Mapping[str, Any]], class_names: Sequence[str]) -> dict[str, list[str]]:
    """Make the cells of each column that is told of some row, by its heading."""
    columns = {}
    for name in rows[0] if rows else ():
        if any(_is_told(name, row[name]) for row in rows):
            columns[name] = [_told(row[name]) for row in rows]
    if class_names and "name" in columns:
        # A last layer may have parents that are no class.
        known = {str(number): name for number, name in enumerate(class_names)}
        named = [known.get(number, number) for number in columns["name"]]
        columns = {"class": named, **{k: v for k, v in columns.items() if k != "name"}}
    return columns


def aligned(columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Align rows of text under their headings: names and lists left, numbers right."""
    right = [k for k, cells in enumerate(columns.values()) if all(map(_is_number, cells))]
    rows = [[*columns], *zip(*columns.values(), strict=True)]
    yield from in_columns(rows, right=right, margin="    ")


def in_columns(
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[int] = (),
    margin: str = "",
    width: int = WIDEST,
) -> list[str]:
    """Set cells below each other, as many in each row, as lines of plain text wherever they are
    printed; columns `right`, counted from 0, end together. In a line that would be wider than
    `width` the text of the last column goes on below itself.

    >>> in_columns([("a", "long"), ("word", "b")])
    ['a     long', 'word  b']
    """
    table = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        if not table.columns:
            for number in range(len(row)):
                side: Literal["right", "left"] = "right" if number in right else "left"
                table.add_column(justify=side, no_wrap=number < len(row) - 1)
        # What steers a terminal has no width.
        table.add_row(*(Text(printable(cell, keep="")) for cell in row))
    console = Console(file=StringIO(), width=width, color_system=None, force_jupyter=False)
    with console.capture() as told:
        console.print(table)
    lines = told.get().splitlines() if table.rows else []
    return [f"{margin}{line}".rstrip() for line in lines]


def _explained(
    margin: str, explained: Mapping[str, tuple[str, str]], values: Mapping[str, str]
) -> Iterator[str]:
    """Explain numbers, one a line, behind them where there are any."""
    rows = []
    for name, value in values.items():
        if name in explained:
            unit, meaning = explained[name]
            said = meaning if unit == name else f"{meaning} ({unit})"
            rows.append((name, value, said) if any(values.values()) else (name, said))
    yield from in_columns(rows, margin=margin)


def _is_told(name: str, value: Any) -> bool:
    """Say whether a value is told: numbers, names, intervals, and the bins of a histogram."""
    if isinstance(value, list):
        whole = bool(value) and all(type(each) is int for each in value)
        return whole or (name.endswith("interval") and len(value) == 2)
    return not isinstance(value, dict)


def _told(value: Any) -> str:
    if isinstance(value, list):
        shown = [_told(each) for each in value[:MOST_TOLD]]
        if value and isinstance(value[0], float):
            return " to ".join(shown)
        return " ".join([*shown, *(["…"] if len(value) > MOST_TOLD else [])]) or "–"
    if isinstance(value, float):
        # What rounding leaves of zero is zero.
        return f"{value:.4g}" if abs(value) > 1e-12 else "0"
    return "–" if value is None else str(value)


def _is_number(cell: str) -> bool:
    return cell == "–" or (cell.lstrip("-")[:1].isdigit() and " " not in cell)
