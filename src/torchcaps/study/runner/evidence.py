"""Records of systems whose seeds have all come to an end."""

import os
from pathlib import Path

from torchcaps.study.collect import record_of_runs
from torchcaps.study.record import Record, read_records, write_record
from torchcaps.study.runner.ledger import Ledger
from torchcaps.study.runner.system import Study, System

__all__ = ["write_records"]


def write_records(study: Study, ledger: Ledger, evidence: str | os.PathLike[str]) -> list[Path]:
    """Write the record of each system that is complete, and return the paths of all of them.

    A record that says the same already stays; one that says less is superseded.
    """
    # Two that end at once would both find no record of a system.
    with ledger.recording():
        there = read_records(evidence, study=study.name, drafts=True)
        written = [_write(study, each, ledger, evidence, there) for each in study.systems]
    return [path for path in written if path is not None]


def _write(
    study: Study,
    system: System,
    ledger: Ledger,
    evidence: str | os.PathLike[str],
    there: dict[str, Record],
) -> Path | None:
    cells = system.cells()
    states = [ledger.state(cell) for cell in cells]
    if not set(states) <= {"done", "failed"} or "done" not in states:
        return None
    done = [cell for cell, state in zip(cells, states, strict=True) if state == "done"]
    failed = [cell for cell, state in zip(cells, states, strict=True) if state == "failed"]
    record = record_of_runs(
        [ledger.run(cell).folder for cell in done],
        study=study.name,
        claims=system.claims,
        measured={cell.recipe.seed: ledger.values(cell) for cell in done},
        measured_by=[ledger.measured_by(cell) for cell in done],
        failed={cell.recipe.seed: ledger.failure(cell) or "" for cell in failed},
        reduced=system.reduced,
        departures=system.departures,
    )
    for name, old in there.items():
        if not _is_about_the_same(old, record):
            continue
        if _says_the_same(old, record):
            return Path(evidence) / study.name / f"{name}.json"
        if not record.is_draft or old.is_draft:
            record = record.model_copy(update={"supersedes": name})
    return write_record(record, evidence)


def _is_about_the_same(old: Record, new: Record) -> bool:
    return (old.recipe_hash, set(old.claims)) == (new.recipe_hash, set(new.claims))


def _says_the_same(old: Record, new: Record) -> bool:
    """Whether nothing but the moment of writing differs."""
    moment = {"made": new.made, "supersedes": None}
    return old.model_copy(update=moment) == new
