"""One process at a time writes to a folder."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchcaps.errors import TorchcapsError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# How long to wait for another process to leave a run.
LOCK_SECONDS = 10.0


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes from writing to a folder, until the end or the death of this one.

    A lock on the folder itself leaves no file behind. Where the system has none, nothing is kept.
    """
    if fcntl is None:
        yield
        return
    folder_number = os.open(folder, os.O_RDONLY)
    try:
        _lock(folder_number, folder)
        yield
    finally:
        os.close(folder_number)


def _lock(folder_number: int, folder: Path) -> None:
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(folder_number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            # Workers of a run that was killed hold it until they notice.
            if time.monotonic() > until:
                raise TorchcapsError(
                    f"another process is training in {folder}; wait for it, or choose another "
                    f"folder."
                ) from None
            time.sleep(0.1)
        except OSError:
            # A file system without locks.
            return
