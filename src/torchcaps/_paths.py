"""Paths as somebody gave them."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from torchcaps.errors import TorchcapsError, short


def make_new(path: Path) -> None:
    """Give an empty file that nobody has laid there: a planted link is not written through."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    os.close(os.open(path, flags, 0o666))


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Say where to write what shall take the place of a file; removed if it does not."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    make_new(partial)
    try:
        with _named(path):
            yield partial
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let an error say which file it is of: the system names none that is open already."""
    try:
        yield
    except OSError as error:
        if error.errno and not error.filename:
            error.filename = str(path)
        raise


def own_file(path: Path, what: str, then: str) -> BinaryIO:
    """Open a file of ours to read and to append to. In a folder that others may write to, its name
    may be taken by a link to a file that is not to be written, or by a pipe that never answers.
    The sentence about that says what the file should be, and what to do then."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        number = os.open(path, flags, 0o666)
    except OSError as error:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise _not_ours(path, what, then) from error
        raise
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(number)
        raise _not_ours(path, what, then)
    return os.fdopen(number, "a+b")


def _not_ours(path: Path, what: str, then: str) -> TorchcapsError:
    return TorchcapsError(
        f"{path} should be {what}, but is a link or no ordinary file; somebody else may have put "
        f"it there: look at it, remove it, and {then}."
    )


def write_whole(path: Path, text: str) -> None:
    """Replace a file in one step: a reader sees the old one or the new one."""
    with beside(path) as partial:
        partial.write_text(text, encoding="utf-8")
        put_in_place(partial, path)


def put_in_place(partial: Path, path: Path) -> None:
    """Rename a file once its bytes are on the disk, and wait until its name is too: not even a
    power cut leaves an empty file, or a later one before it."""
    with _named(path), partial.open("r+b") as file:
        os.fsync(file.fileno())
    partial.replace(path)
    # Not every system can: Windows opens no folder, and some network disks refuse.
    with suppress(OSError):
        number = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def path_of(argument: str, value: str | os.PathLike[str]) -> Path:
    """Give the path, or a sentence about what no file system takes."""
    is_path = isinstance(value, str) or (
        isinstance(value, os.PathLike) and isinstance(os.fspath(value), str)
    )
    if not is_path:
        raise TorchcapsError(
            f"{argument} must be a path, text or a pathlib.Path, but came as {short(value)}."
        )
    path = Path(value)
    try:
        path.lstat()
    except ValueError:
        raise TorchcapsError(
            f"no path holds the character zero, but {short(value)} does."
        ) from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise TorchcapsError(
                f"{argument} is longer than the name of any file may be: {short(os.fspath(value))}."
            ) from None
    return path
