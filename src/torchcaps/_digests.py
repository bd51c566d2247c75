"""The digest of every file of a run, so that a file that a disk or a copy has changed, or that came
from another run, is not used.

digests.json holds, by the name of a file, the SHA-256 of the file as it is and as it was before: a
process that is killed while it replaces a file leaves the one or the other. train/folder/digests.py
writes it.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from torchcaps._json import read_json
from torchcaps.errors import TorchcapsError

NAME = "digests.json"

_compares: ContextVar[bool] = ContextVar("compares", default=True)


@contextmanager
def formats_alone() -> Iterator[None]:
    """Take files for as good as their formats show, as where nobody can read their digests."""
    before = _compares.set(False)
    try:
        yield
    finally:
        _compares.reset(before)


def check_digest(path: Path, content: bytes | None = None) -> None:
    """Refuse a file that is not the one that the run wrote, or its content if it was read. Runs of
    earlier versions wrote no digests; their files are as good as their formats show."""
    known = known_digests(path.parent).get(path.name) if _compares.get() else None
    if known is None or not path.is_file():
        return
    found = digest_of(path) if content is None else hashlib.sha256(content).hexdigest()
    if found not in known:
        raise TorchcapsError(
            f"{path} is damaged or was edited: its SHA-256 begins with {found[:12]}, where the run "
            f"wrote {known[0][:12]}; copy it once more from where it is whole, or remove it."
        )


def known_digests(folder: Path) -> dict[str, list[str]]:
    """Read what digests.json says, by the name of a file."""
    path = folder / NAME
    if not path.exists():
        return {}
    try:
        known = read_json(path)
        if not isinstance(known, dict) or not all(map(_are_digests, known.values())):
            raise ValueError("it holds something else than digests")
    except (ValueError, OSError) as error:
        raise TorchcapsError(
            f"{path} cannot be read ({error}), so nobody can say whether the files beside it are "
            f"whole; copy it once more, or remove it and trust them."
        ) from None
    return known


def _are_digests(each: object) -> bool:
    return isinstance(each, list) and bool(each) and all(isinstance(one, str) for one in each)


def digest_of(path: Path) -> str:
    """Give the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
