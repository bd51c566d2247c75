"""Files replaced whole, and their digests written down first; `torchcaps._digests` reads them."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchcaps._digests import NAME, digest_of, known_digests

__all__ = ["beside", "expect", "put_in_place", "write_whole"]


def write_whole(path: Path, text: str) -> None:
    """Replace a file in one step: a reader sees the old one or the new one."""
    with beside(path) as partial:
        partial.write_text(text, encoding="utf-8")
        put_in_place(partial, path)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Where to write what shall take the place of a file; removed if it does not."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def put_in_place(partial: Path, path: Path) -> None:
    """Rename a file once its bytes are on the disk: not even a power cut leaves an empty one."""
    with partial.open("r+b") as file:
        os.fsync(file.fileno())
    partial.replace(path)


def expect(partial: Path, path: Path) -> None:
    """Write down the digest of what is about to take the place of `path`."""
    known = known_digests(path.parent)
    before = [digest_of(path)] if path.is_file() else []
    known[path.name] = list(dict.fromkeys([digest_of(partial), *before]))
    write_whole(path.with_name(NAME), json.dumps(known, indent=1))
