"""The digest of every file of a run, so that a file that a disk or a copy has changed is not used.

digests.json holds, by the name of a file, the SHA-256 of the file as it is and as it was before: a
process that is killed while it replaces a file leaves the one or the other.
"""

import hashlib
import json
import os
from pathlib import Path

from torchcaps.errors import TorchcapsError

__all__ = [
    "NAME",
    "check_digest",
    "digest_of",
    "expect",
    "known_digests",
    "put_in_place",
    "write_whole",
]

NAME = "digests.json"


def write_whole(path: Path, text: str) -> None:
    """Replace a file in one step: a reader sees the old one or the new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        put_in_place(partial, path)
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


def check_digest(path: Path) -> None:
    """Refuse a file that is not the one that the run wrote. Runs of earlier versions wrote no
    digests; their files are as good as their formats show."""
    known = known_digests(path.parent).get(path.name)
    if known is None or not path.is_file():
        return
    found = digest_of(path)
    if found not in known:
        raise TorchcapsError(
            f"{path} is damaged or was edited: its SHA-256 begins with {found[:12]}, where the run "
            f"wrote {known[0][:12]}; copy it once more from where it is whole, or remove it."
        )


def known_digests(folder: Path) -> dict[str, list[str]]:
    """What digests.json says, by the name of a file."""
    path = folder / NAME
    if not path.exists():
        return {}
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        if not all(_are_digests(each) for each in known.values()):
            raise ValueError("it holds something else than digests")
    except (ValueError, AttributeError, TypeError, RecursionError, OSError) as error:
        raise TorchcapsError(
            f"{path} cannot be read ({error}), so nobody can say whether the files beside it are "
            f"whole; copy it once more, or remove it and trust them."
        ) from None
    return {str(name): list(digests) for name, digests in known.items()}


def _are_digests(each: object) -> bool:
    return isinstance(each, list) and bool(each) and all(isinstance(one, str) for one in each)


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
