"""Whether another machine sees the folder of the cells; how a cell travels where it does not."""

import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

__all__ = ["Files", "is_held", "is_seen", "pack", "signed", "unpack"]

# Seconds. Who asks whether a lock is free holds it for a thousandth of that.
ASKING = 0.1
# The files of a cell, by their paths within the folder of all cells.
Files = Mapping[str, bytes]


@contextmanager
def signed(folder: Path) -> Iterator[str]:
    """Hold a lock in a folder, whose name tells another machine by what it knows the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    sign = f".seen-by-{uuid.uuid4().hex}.lock"
    lock = FileLock(folder / sign)
    lock.acquire()
    try:
        yield sign
    finally:
        lock.release()
        (folder / sign).unlink(missing_ok=True)


def is_seen(folder: Path, sign: str) -> bool:
    """Whether this machine sees that folder, and its locks too: then workers here may take cells
    by themselves, and none is taken twice."""
    return (folder / sign).is_file() and is_held(folder / sign)


def is_held(file: Path) -> bool:
    """Whether a process that lives holds this lock, and not for a moment, as one that asks does."""
    lock = FileLock(file)
    try:
        lock.acquire(timeout=ASKING, poll_interval=ASKING / 10)
    except Timeout:
        return True
    lock.release()
    return False


def pack(folder: Path, name: str) -> dict[str, bytes]:
    """All that there is of a cell: its runs, and what was measured of it."""
    _finish_moving(folder, name)
    within = [path for run in _runs(folder, name) for path in run.rglob("*") if path.is_file()]
    measured = folder / f"{name}.values.json"
    files = [*within, *([measured] if measured.is_file() else [])]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def unpack(files: Files, folder: Path, name: str) -> None:
    """Put a cell that came from elsewhere in the place of what there is: first each of its runs as
    a whole, then what was measured of it."""
    _finish_moving(folder, name)
    arrived, before = _aside(folder, name)
    for old in (arrived, before):
        shutil.rmtree(old, ignore_errors=True)
    before.mkdir(parents=True)
    for path, content in files.items():
        place = arrived / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    _move(folder, name)


def _move(folder: Path, name: str) -> None:
    """Put what arrived in its place, and what was there out of the way."""
    arrived, before = _aside(folder, name)
    for run in _runs(folder, name):
        if (arrived / run.name).is_dir():
            if run.exists():
                run.rename(before / run.name)
            (arrived / run.name).rename(run)
    measured = arrived / f"{name}.values.json"
    if measured.is_file():
        measured.replace(folder / measured.name)
    for old in (arrived, before):
        shutil.rmtree(old, ignore_errors=True)


def _finish_moving(folder: Path, name: str) -> None:
    """What a process was at that was killed between taking a run away and putting the one that
    arrived in its place; all had arrived by then."""
    _, before = _aside(folder, name)
    if before.is_dir() and any(before.iterdir()):
        _move(folder, name)


def _aside(folder: Path, name: str) -> tuple[Path, Path]:
    """Where a cell lies that has arrived, and what it takes the place of."""
    return folder / f".{name}.arrived", folder / f".{name}.before"


def _runs(folder: Path, name: str) -> list[Path]:
    """The run of a cell, and those that its looks trained."""
    return [folder / f"{name}{ending}" for ending in ("", ".decoder", ".dense")]
