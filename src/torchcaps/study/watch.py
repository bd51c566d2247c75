"""How far a study is, on standard error: a live table where somebody watches, lines in a file."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Column, Table

from torchcaps.study.cost import hours_of
from torchcaps.study.ledger import Ledger, State
from torchcaps.study.record import Record
from torchcaps.study.same import trained_in, trains
from torchcaps.study.system import Cell, Study, System

# A log file gets a line only when something ended, and no more often than this.
SECONDS_BETWEEN_LINES = 5.0


@dataclass
class Progress:
    """Cells by system and state, and the hours that are left on one worker."""

    study: Study
    ledger: Ledger
    states: dict[str, State] = field(default_factory=dict)
    # Seeds that stand in records, by the network that they train; None where nobody looked.
    recorded: Mapping[str, set[int]] | None = None

    def _row(self, system: System, cells: Sequence[Cell]) -> dict[str, Any]:
        """Count some cells of a system by state, and their hours left; None where nobody knows."""
        counts = Counter(self.states[cell.name] for cell in cells)
        left = len(cells) - counts["done"] - counts["failed"]
        known = (self.recorded or {}).get(trains(system.recipe), set())
        hours_left = left * self._hours_a_cell(system) if left else 0.0
        return {
            "system": system.label,
            "cells": len(cells),
            **{state: counts[state] for state in ("done", "failed", "stopped", "running")},
            # A cell that an error stopped is left: the same line tries it again.
            "left": left,
            "in_records": len(known & {cell.recipe.seed for cell in cells}),
            "hours_left": None if math.isnan(hours_left) else hours_left,
        }

    def rows(self, *, by_cost: bool = False) -> list[dict[str, Any]]:
        """Make one row a system, in the order of the study, or the cheapest first."""
        rows = [self._row(system, system.cells()) for system in self.study.systems]
        if by_cost:
            rows.sort(key=lambda row: math.inf if row["hours_left"] is None else row["hours_left"])
        return rows

    def numbers(self, *, by_cost: bool = False) -> dict[str, Any]:
        rows, own = self.rows(by_cost=by_cost), self._own_rows()
        waiting = [{"row": each.label, "needs": list(each.needs)} for each in self.study.waiting]
        counted = ("cells", "done", "failed", "stopped", "running", "left", "in_records")
        total = {key: sum(row[key] for row in own) for key in counted}
        each = [row["hours_left"] for row in own]
        total |= {"hours_left": None if None in each else sum(each)}
        return {"study": self.study.name, **total, "systems": rows, "cannot_be_run": waiting}

    def _own_rows(self) -> list[dict[str, Any]]:
        """Count of each system the cells that none before it has: they are trained once."""
        seen: set[str] = set()
        rows = []
        for system in self.study.systems:
            own = [cell for cell in system.cells() if cell.name not in seen]
            seen |= {cell.name for cell in own}
            rows.append(self._row(system, own))
        return rows

    def text(self) -> str:
        """Say the sum of all systems in one line."""
        sums = self.numbers()
        failed = f", {sums['failed']} failed" if sums["failed"] else ""
        failed += f", {sums['stopped']} stopped by an error" if sums["stopped"] else ""
        recorded = f"; {sums['in_records']} are in records" if sums["in_records"] else ""
        count, how_long = sums["hours_left"], "nobody knows for how long, before a seed is done"
        if count is not None:
            how_long = f"about {hours(count)} on one worker"
        return (
            f"{sums['done']} of {sums['cells']} cells done{failed}, {sums['running']} running, "
            f"{sums['left']} left: {how_long}{recorded}"
        )

    def table(self, *, by_cost: bool = False) -> Table:
        # Whole in a narrow window too: `--only` takes what stands there.
        system = Column("system", overflow="fold")
        table = Table(system, title=self.text(), title_justify="left", box=None)
        recorded = () if self.recorded is None else ("in_records",)
        columns = ("done", "failed", "running", "left", *recorded, "hours_left")
        for name in columns:
            table.add_column(name.replace("_", " "), justify="right")
        for row in self.rows(by_cost=by_cost):
            row["hours_left"] = "?" if row["hours_left"] is None else hours(row["hours_left"])
            table.add_row(row["system"], *(str(row[name]) for name in columns))
        return table

    def _hours_a_cell(self, system: System) -> float:
        """Estimate by the seeds that are done, or by the count of FLOPs."""
        done = [cell for cell in system.cells() if self.states[cell.name] == "done"]
        if not done:
            return hours_of(system.recipe)
        return sum(self.ledger.run(cell).seconds for cell in done) / len(done) / 3600


def progress_of(
    study: Study, ledger: Ledger, *, records: Iterable[Record] | None = None
) -> Progress:
    """Say how far a study is now: by the runs of a ledger, and beside them by records, which a
    clone has of networks that were trained elsewhere."""
    states = {cell.name: ledger.state(cell) for cell in study.cells()}
    found: dict[str, set[int]] = {}
    for record in records or ():
        if (network := trained_in(record)) is not None:
            found.setdefault(network, set()).update(each.seed for each in record.seeds)
    return Progress(study, ledger, states, None if records is None else found)


def hours(count: float) -> str:
    return f"{count * 60:.0f} min" if count < 1 else f"{count:.1f} h"


@contextmanager
def watched(study: Study, ledger: Ledger) -> Iterator[Any]:
    """Give a function that takes the state of every cell and shows how far the study is."""
    console = Console(stderr=True, highlight=False)
    progress = Progress(study, ledger)
    last_line, last_text = -math.inf, ""

    def show(states: dict[str, State]) -> None:
        nonlocal last_line, last_text
        is_early = monotonic() - last_line < SECONDS_BETWEEN_LINES
        if states == progress.states or (is_early and not console.is_terminal):
            return
        progress.states = states
        if console.is_terminal:
            live.update(progress.table(), refresh=True)
        elif (text := progress.text()) != last_text:
            console.print(text, soft_wrap=True)
            last_line, last_text = monotonic(), text

    live = Live(console=console, transient=True, auto_refresh=False)
    with live if console.is_terminal else nullcontext():
        yield show
