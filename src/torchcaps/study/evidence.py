"""Records of systems whose seeds have all come to an end."""

import os
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from torchcaps.errors import TorchcapsError
from torchcaps.study.collect import record_of_runs
from torchcaps.study.ledger import Ledger
from torchcaps.study.record import Record, read_records, write_record
from torchcaps.study.same import trained_in
from torchcaps.study.system import Cell, Study, System
from torchcaps.tasks.values_file import values_file

LOCK = ".records.lock"


def write_records(study: Study, ledger: Ledger, evidence: str | os.PathLike[str]) -> list[Path]:
    """Write the record of each system that is complete, and return the paths of all of them.

    Where a record says as much already, none is written. The new one supersedes a record that says
    less, but not one that has more seeds or other statistics: that counts beside it.
    """
    ended = {"done", "failed"}
    complete = [x for x in study.systems if {ledger.state(cell) for cell in x.cells()} <= ended]
    if not complete:
        return []
    folder = Path(evidence)
    folder.mkdir(parents=True, exist_ok=True)
    # Two processes that end at once would both find no record of a system, and both write one.
    with FileLock(folder / LOCK):
        there = read_records(evidence, study=study.name, drafts=True)
        written, refused = [], []
        for each in complete:
            try:
                written.append(_write(study, each, ledger, folder, there))
            except TorchcapsError as error:
                refused.append(error)
    if refused:
        # Those of the other systems are written.
        raise refused[0]
    return [path for path in written if path is not None]


def _write(
    study: Study, system: System, ledger: Ledger, evidence: Path, there: dict[str, Record]
) -> Path | None:
    """Write a system's record, or find one that says as much; None where nothing was trained."""
    record = _record_of(study, system, ledger)
    if record is None:
        return None
    alike = {name: old for name, old in there.items() if _is_about_the_same(old, record)}
    for name, old in alike.items():
        if _says_as_much(old, record):
            return evidence / study.name / f"{name}.json"
    replaced = [
        (not old.is_draft, old.measured, old.made, name)
        for name, old in alike.items()
        if _can_stand_for(record, old)
    ]
    if replaced:
        # It can name one alone: the one that is shown of several.
        record = record.model_copy(update={"supersedes": max(replaced)[-1]})
    return write_record(record, evidence)


def _record_of(study: Study, system: System, ledger: Ledger) -> Record | None:
    """Read the record of a system from the runs of its cells, which have all come to an end."""
    states = [(cell, ledger.state(cell)) for cell in system.cells()]
    done, failed = ([cell for cell, state in states if state == how] for how in ("done", "failed"))
    begun = [run.folder for run in map(ledger.run, failed) if run.environment_file.is_file()]
    if not done and not begun:
        return None
    for cell in done:
        if not ledger.run(cell).is_done:
            values = values_file(ledger.run(cell).folder)
            raise TorchcapsError(
                f"{values} holds what was measured of {cell.name}, but its run is gone or has lost "
                f"its result; put the run back, or remove the file as well, and the same line "
                f"trains it anew."
            )
    record = record_of_runs(
        [ledger.run(cell).folder for cell in done],
        study=study.name,
        claims=system.claims,
        measured={cell.recipe.seed: ledger.values(cell) for cell in done},
        measured_by=[each for cell in (*done, *failed) for each in ledger.measured_by(cell)],
        failed={cell.recipe.seed: ledger.failure(cell) or "" for cell in failed},
        failed_in=begun,
        reduced=system.reduced,
        departures=system.departures,
    )
    return record.model_copy(update={"data": {**record.data, **_images(done, ledger)}})


def _images(cells: Sequence[Cell], ledger: Ledger) -> dict[str, str]:
    """Read the digests of the images of other sets that all cells were measured on."""
    found: dict[str, str] = {}
    for cell in cells:
        for name, digest in ledger.images(cell).items():
            if found.setdefault(name, digest) != digest:
                raise TorchcapsError(
                    f"{cell.name} was measured on other images of {name} (digest {digest}) than "
                    f"the seeds before it ({found[name]}), so they do not make one record; remove "
                    f"{values_file(ledger.run(cell).folder)}, and it is measured again."
                )
    return found


def _is_about_the_same(old: Record, new: Record) -> bool:
    """Say whether they differ in their seeds and claims at most."""
    trained = trained_in(new)
    is_same = old.recipe_hash == new.recipe_hash or (trained and trained == trained_in(old))
    # The folder of a study may hold those of others.
    return old.study == new.study and bool(is_same)


def _says_as_much(old: Record, new: Record) -> bool:
    """Say whether the old one holds the same seeds with the same numbers, or more of either."""
    if (old.reduced, old.departures) != (new.reduced, new.departures):
        return False
    seeds = {each.seed: each for each in old.seeds}
    return _can_stand_for(old, new) and all(
        seeds[each.seed].model_copy(update={"values": each.values}) == each
        and each.values.items() <= seeds[each.seed].values.items()
        for each in new.seeds
    )


def _can_stand_for(one: Record, other: Record) -> bool:
    """Say whether a record may be read in the place of another: no draft takes a result away, nor
    do fewer seeds, statistics or claims."""
    seeds = {each.seed: each.values.keys() for each in one.seeds}
    has_all = all(
        each.seed in seeds and each.values.keys() <= seeds[each.seed] for each in other.seeds
    )
    is_as_sure = other.is_draft or not one.is_draft
    return has_all and is_as_sure and {*other.claims} <= {*one.claims}
