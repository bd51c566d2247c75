"""The folder of a study's cells: what is done, who is at work, and what was measured.

Beside the run folder of a cell, NAME/, lie

NAME.ENDING/       a run that a look trained, by the ending that it is registered with
NAME.values.json   what was measured of it, look by look, and by which code; with its digest
NAME.lock          held by the process that works on it, and free again when that process dies
NAME.claim         which process that is, for people and for whoever watches

Any number of processes may work on one ledger, and all of them may be killed.
"""

import json
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from torchcaps._json import read_json
from torchcaps._paths import write_whole
from torchcaps.errors import TorchcapsError
from torchcaps.study.disk import is_held
from torchcaps.study.look import Look, kind_named
from torchcaps.study.system import Cell
from torchcaps.tasks.values_file import (
    network_of,
    read_values,
    values_file,
    values_of,
    write_values,
)
from torchcaps.train import Run
from torchcaps.train.folder.environment import environment

# "stopped" is a cell that ended in an error nobody expected; the next call tries it again.
State = Literal["done", "failed", "stopped", "running", "begun", "waiting"]
# Whoever looks whether a cell is taken holds its lock for a moment.
PATIENCE = 0.3


@dataclass(frozen=True)
class Ledger:
    """Where the files of all cells lie."""

    folder: Path

    def run(self, cell: Cell) -> Run:
        """Name its run folder, there or not."""
        return Run(self._at(cell))

    def _at(self, cell: Cell, ending: str = "") -> Path:
        """Name what lies there of it, even of a run from before names told the routing."""
        recipe = cell.recipe
        before = f"{recipe.model}-s{recipe.seed}-{recipe.digest()}"
        name = before if (self.folder / before).is_dir() else cell.name
        return self.folder / f"{name}{ending}"

    def state(self, cell: Cell) -> State:
        entry = self._read(cell)
        if entry.get("failed"):
            return "failed"
        if not self.missing(cell):
            return "done"
        if entry.get("stopped"):
            return "stopped"
        if self._is_taken(cell):
            return "running"
        return "begun" if self.run(cell).recipe_file.is_file() else "waiting"

    def missing(self, cell: Cell) -> list[Look]:
        """List the looks that nobody took yet."""
        seen = self._read(cell)["looks"]
        return [look for look in cell.looks if look.name not in seen]

    def values(self, cell: Cell) -> dict[str, float]:
        """Read what was measured, under the names that records use."""
        seen = values_of(self.run(cell))["looks"]
        return {
            look.key(name, tested_on=cell.recipe.test_data or cell.recipe.data): value
            for look in cell.looks
            for name, value in seen.get(look.name, {}).items()
        }

    def measured_by(self, cell: Cell) -> tuple[str | None, ...]:
        """Name the commits that measured it and trained for that, or the one that saw it fail."""
        entry = self._read(cell)
        if entry.get("failed"):
            return (entry["commit"],)
        took = (entry.get("by", {}).get(look.name) for look in cell.looks)
        endings = filter(None, (kind_named(look.kind).trains for look in cell.looks))
        beside = (Run(self._at(cell, ending)) for ending in endings)
        trained = (each.commits() for each in beside if each.environment_file.is_file())
        return (*took, *(commit for commits in trained for commit in commits))

    def failure(self, cell: Cell) -> str | None:
        """Say how it failed, or why it was stopped."""
        entry = self._read(cell)
        why: str | None = entry.get("failed") or entry.get("stopped")
        return why

    def images(self, cell: Cell) -> dict[str, str]:
        """Read the digests of the images that its looks saw and its run did not, by their names."""
        seen = self._read(cell).get("images", {})
        return {look.images: seen[look.name] for look in cell.looks if look.name in seen}

    def write(
        self, cell: Cell, look: Look, numbers: Mapping[str, float], *, images: str | None = None
    ) -> None:
        """Keep what a look gave; `images` is the digest of what it saw, where the run has none."""
        if wrong := [name for name, value in numbers.items() if not math.isfinite(value)]:
            raise TorchcapsError(
                f"{look.name} gave no number of {cell.name}: {wrong[0]} is {numbers[wrong[0]]}."
            )
        entry, commit = self._read(cell), environment()["commit"]
        entry["commit"] = commit
        entry.setdefault("by", {})[look.name] = commit
        entry["looks"][look.name] = dict(numbers)
        # What a later look saw does not vouch for earlier ones.
        entry["network"] = entry.get("network") or network_of(self.run(cell))
        entry.setdefault("images", {}).pop(look.name, None)
        entry["images"] |= {} if images is None else {look.name: images}
        self._write(cell, entry)

    def fail(self, cell: Cell, why: str, *, is_result: bool) -> None:
        """Keep that it ended without a result: by itself, as training diverges, or by an error."""
        entry = self._read(cell)
        if is_result:
            # An accident measured nothing.
            entry["commit"] = environment()["commit"]
        self._write(cell, {**entry, ("failed" if is_result else "stopped"): why})

    def forgive(self, cell: Cell) -> None:
        """Let a stopped cell be tried again."""
        entry = self._read(cell)
        if entry.pop("stopped", None):
            self._write(cell, entry)

    @contextmanager
    def claimed(self, cell: Cell) -> Iterator[bool]:
        """Take a cell for this process, unless another one has it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._at(cell, ".lock"))
        try:
            lock.acquire(timeout=PATIENCE)
        except Timeout:
            yield False
            return
        claim = self._at(cell, ".claim")
        try:
            who = {"process": os.getpid(), "machine": platform.node(), "since": time.time()}
            write_whole(claim, json.dumps(who))
            yield True
        finally:
            claim.unlink(missing_ok=True)
            lock.release()

    def claimed_by(self, process: int, machine: str) -> str | None:
        """Name the cell that a process was at when it died."""
        for claim in self.folder.glob("*.claim"):
            try:
                who = read_json(claim)
            except (OSError, ValueError):
                continue
            known = isinstance(who, dict) and (who.get("process"), who.get("machine"))
            if known == (process, machine):
                return claim.stem
        return None

    def _is_taken(self, cell: Cell) -> bool:
        claim = self._at(cell, ".claim")
        try:
            return claim.is_file() and is_held(self._at(cell, ".lock"))
        except OSError:
            # Who may only read the folder cannot ask.
            return True

    def _read(self, cell: Cell) -> dict[str, Any]:
        return read_values(values_file(self._at(cell)))

    def _write(self, cell: Cell, entry: Mapping[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_values(values_file(self._at(cell)), entry)
