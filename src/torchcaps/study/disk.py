"""Whether another machine sees the folder of the cells, and its locks too."""

import platform
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

# Seconds. Who asks whether a lock is free holds it for a thousandth of that.
ASKING = 0.1


@contextmanager
def signed(folder: Path) -> Iterator[str]:
    """Hold a lock in a folder, whose name tells another machine by what it knows the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    sign = f".seen-by-{uuid.uuid4().hex}.lock"
    try:
        with FileLock(folder / sign):
            yield sign
    finally:
        (folder / sign).unlink(missing_ok=True)


def unseen(folder: Path, sign: str, who: str) -> str:
    """Say in one sentence that this machine does not see a signed folder, or not its locks, so that
    cells would be taken twice; nothing where it does. `who` is what runs here: "the Slurm job"."""
    if (folder / sign).is_file() and is_held(folder / sign):
        return ""
    return (
        f"{who} on {platform.node()} does not see {folder} as this machine does, or its disk has "
        f"no locks that hold across machines; let --out name a folder on the disk that all "
        f"machines share."
    )


def is_held(file: Path) -> bool:
    """Say whether a living process holds this lock, and not for a moment, as one that asks does."""
    lock = FileLock(file)
    try:
        lock.acquire(timeout=ASKING, poll_interval=ASKING / 10)
    except Timeout:
        return True
    lock.release()
    return False
