"""Whether somebody holds a lock."""

from pathlib import Path

from filelock import FileLock, Timeout

# Seconds. Who asks whether a lock is free holds it for a thousandth of that.
ASKING = 0.1


def is_held(file: Path) -> bool:
    """Whether a process that lives holds this lock, and not for a moment, as one that asks does."""
    lock = FileLock(file)
    try:
        lock.acquire(timeout=ASKING, poll_interval=ASKING / 10)
    except Timeout:
        return True
    lock.release()
    return False
