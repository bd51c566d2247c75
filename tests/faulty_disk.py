"""A disk that fails calls of Python, as SQLite's tests have one. Nothing of it is in src."""

import builtins
import errno
import io
import itertools
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from torchcaps.cli.failures import failure_of

# What may become of a call; "torn" writes a half and then finds the disk full. A short write is
# no error, and Python itself repeats one that a signal broke off.
FAULTS = {
    "open": ("EACCES", "EIO", "ENOSPC", "EINTR", "EMFILE"),
    "write": ("ENOSPC", "EIO", "EINTR", "short", "torn"),
    "fsync": ("EIO", "ENOSPC", "EINTR"),
    "rename": ("EACCES", "EIO", "ENOSPC", "EINTR"),
}
# What an ill disk says of every later call of the kind too.
LASTING = ("ENOSPC", "EIO")


class Renamed(NamedTuple):
    """A file that took its place, or was removed (None), and whether its bytes were on the disk."""

    target: Path
    content: bytes | None
    is_synced: bool


class Fault(NamedTuple):
    """The call `at` a place fails; if it lasts, all of its kind after it as well."""

    at: int
    kind: str
    what: str
    lasts: bool = False


class FaultyDisk:
    """Counts the calls to files of a folder, and fails some of them."""

    def __init__(self, folder: Path, fault: Fault | None = None):
        self.folder, self.fault = str(folder), fault
        # Kind and name of every call.
        self.calls: list[tuple[str, str]] = []
        # Renames, and None for each moment from which all before it outlive a power cut.
        self.journal: list[Renamed | None] = []
        self.unsynced: set[str] = set()

    def is_ours(self, path: object) -> bool:
        return isinstance(path, str | os.PathLike) and str(path).startswith(self.folder)

    def call(self, kind: str, path: object, *, named: bool = True) -> str:
        """Count a call, and fail it with an error, or with what the caller has to do."""
        at, fault = len(self.calls), self.fault
        self.calls.append((kind, Path(str(path)).name))
        if fault is None or at < fault.at or (at > fault.at and not fault.lasts):
            return ""
        if kind != fault.kind:
            assert at > fault.at, f"call {at} is {kind} of {path}, and was {fault.kind}"
            return ""
        if fault.what in ("short", "torn"):
            return fault.what
        raise _error(fault.what, path if named else None)


def _error(what: str, path: object = None) -> OSError:
    number = getattr(errno, what)
    # The system names no file where it was given the number of an open one.
    return OSError(number, os.strerror(number), *([] if path is None else [str(path)]))


class _Raw(io.FileIO):
    """What Python's buffers write to."""

    def __init__(self, disk: FaultyDisk, path: Any, mode: str):
        super().__init__(path, mode)
        self.disk = disk

    def write(self, content: Any) -> int:
        what = self.disk.call("write", self.name, named=False)
        self.disk.unsynced.add(str(self.name))
        if not what:
            return super().write(content)
        written = super().write(memoryview(content)[: max(1, len(content) // 2)])
        if what == "torn":
            raise _error("ENOSPC")
        return written


@contextmanager
def mounted(disk: FaultyDisk) -> Iterator[FaultyDisk]:
    """Lead every open, write, fsync and rename in the folder through the disk."""
    opened, real, replace, unlink = io.open, os.open, os.replace, os.unlink

    def open_(path: Any, mode: str = "r", buffering: int = -1, *rest: Any, **more: Any) -> Any:
        if not disk.is_ours(path):
            return opened(path, mode, buffering, *rest, **more)
        disk.call("open", path)
        if not set(mode) & set("wax+"):
            return opened(path, mode, buffering, *rest, **more)
        raw = _Raw(disk, path, mode.replace("b", "").replace("t", ""))
        held = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return held if "b" in mode else io.TextIOWrapper(held, *rest, **more)

    def os_open(path: Any, *rest: Any, **more: Any) -> int:
        if disk.is_ours(path):
            disk.call("open", path)
        return real(path, *rest, **more)

    def os_fsync(number: int) -> None:
        # No real one: it is what takes time, and no power is cut.
        path = Path(f"/proc/self/fd/{number}").readlink()
        disk.call("fsync", path, named=False)
        disk.unsynced.discard(str(path))
        if path.is_dir():
            disk.journal.append(None)

    def os_replace(source: Any, target: Any, **more: Any) -> None:
        if disk.is_ours(target):
            disk.call("rename", target)
            is_synced = str(source) not in disk.unsynced
            disk.journal.append(Renamed(Path(target), Path(source).read_bytes(), is_synced))
        replace(source, target, **more)

    def os_unlink(path: Any, **more: Any) -> None:
        unlink(path, **more)
        if disk.is_ours(path) and not str(path).endswith(".partial"):
            disk.journal.append(Renamed(Path(path), None, is_synced=True))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io, "open", open_)
        patch.setattr(builtins, "open", open_)
        patch.setattr(os, "open", os_open)
        patch.setattr(os, "fsync", os_fsync)
        patch.setattr(os, "replace", os_replace)
        patch.setattr(os, "unlink", os_unlink)
        yield disk


def faults_of(calls: list[tuple[str, str]]) -> list[Fault]:
    """Every fault of every call."""
    once = [Fault(at, kind, what) for at, (kind, _) in enumerate(calls) for what in FAULTS[kind]]
    lasting = [each._replace(lasts=True) for each in once if each.what in LASTING]
    return [*once, *lasting]


def drawn(faults: list[Fault], count: int, seed: int) -> list[Fault]:
    """Some of them; each is found again by the seed that pytest prints."""
    return random.Random(seed).sample(faults, min(count, len(faults)))


def sentence_of(command: Callable[[], object]) -> str | None:
    """What the command line says of a command that failed, None of one that did not; a fault of
    torchcaps is raised."""
    try:
        command()
    except Exception as error:
        failure = failure_of(error)
        if failure is None or failure.code != 2 or "\n" in failure.sentence:
            raise
        return failure.sentence
    return None


def after_a_power_cut(journal: list[Renamed | None], *, is_honest: bool) -> Iterator[list[Renamed]]:
    """What became of the files, in their order. Of an honest disk the last two may be lost, each by
    itself, if nobody waited for their names, and are torn if nobody waited for their bytes; another
    one loses or tears them whoever waited."""
    moves = [at for at, each in enumerate(journal) if each is not None]
    for count in range(len(moves) + 1):
        kept, last = moves[:count][:-2], moves[:count][-2:]
        ends = [("there", "lost") if is_honest else ("there", "lost", "torn")] * len(last)
        if is_honest:
            # The power fails before anybody waits for the very last.
            ends = [("there",) if None in journal[at : last[-1]] else ends[0] for at in last]
        for chosen in itertools.product(*ends):
            found = [journal[at] for at in kept]
            for at, end in zip(last, chosen, strict=True):
                if end != "lost":
                    found.append(_torn(journal[at]) if end == "torn" else journal[at])
            yield [_torn(each) if not each.is_synced else each for each in found]


def _torn(each: Renamed) -> Renamed:
    half = None if each.content is None else each.content[: len(each.content) // 2]
    return each._replace(content=half)


def lay(moves: list[Renamed], folder: Path) -> None:
    """Put files where they took their places, in a folder of their own."""
    for each in moves:
        place = folder / each.target.name
        if each.content is None:
            place.unlink(missing_ok=True)
        else:
            place.write_bytes(each.content)
