"""Published files, fetched from their mirrors and kept only when their SHA-256 is right.

A file grows as NAME.partial beside its place, and gets its name when it is whole and right. So no
reader ever sees half a file, whatever stops the fetching, and the next call goes on. Nothing that
comes is run, and no server can send more than the file's size.
"""

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import cast
from urllib.parse import urljoin, urlsplit

from filelock import FileLock

from torchcaps._checks import check_number
from torchcaps._paths import own_file, path_of
from torchcaps.data.read.packed import check_published
from torchcaps.data.registry import PUBLISHED, RemoteFile
from torchcaps.errors import Interrupted, TorchcapsError, nearest

# Called with a file's name, how many of its bytes are here, and how many it has.
Progress = Callable[[str, int, int], None]

CHUNK = 1 << 18
# How often one mirror is asked for the rest of a file, as long as each time brings more of it.
ATTEMPTS = 5
# Seconds.
A_DAY = 86_400
REDIRECTS = 5

_MOVED = (301, 302, 303, 307, 308)
_PART = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class _RefusedError(Exception):
    """What a mirror did instead of sending the file: the end of '… the mirror'."""


class _DroppedError(_RefusedError):
    """It sent a part; asked again, it may send the rest."""


def fetch_data(
    name: str,
    *,
    root: str | os.PathLike[str],
    timeout: float = 30.0,
    progress: Progress | None = None,
) -> list[Path]:
    """Lay the files of a published data set below `root`, where `load(name, root=root)` looks.

    Files that are there already are checked, not fetched. What was begun is continued, by the next
    call after an interruption too. Two processes may fetch into one folder: one waits.

    Arguments:
        name: a name of `PUBLISHED`.
        root: the folder below which the files are laid.
        timeout: seconds to wait for a connection, and for each next piece.
        progress: called as (file name, bytes here, bytes in all); None: nobody is told.

    >>> fetch_data("mnist", root="data")  # doctest: +SKIP
    """
    if name not in PUBLISHED:
        raise TorchcapsError(
            f"{name!r} is no data set that can be fetched; {nearest(name, PUBLISHED)}."
        )
    check_number("timeout", timeout, above=0, most=A_DAY, so="it is in seconds")
    try:
        return [
            _fetch(file, path_of("root", root), timeout, progress) for file in PUBLISHED[name].files
        ]
    except KeyboardInterrupt:
        raise Interrupted(
            f"fetching {name} was interrupted; the same command goes on where it stopped."
        ) from None
    except OSError as error:
        raise TorchcapsError(
            f"{name} could not be written to {root} ({error.strerror or error}); is the folder "
            f"yours, and is there room: what came is kept, and the same command goes on."
        ) from None


def _fetch(file: RemoteFile, root: Path, timeout: float, progress: Progress | None) -> Path:
    place = root / file.path
    if place.exists():
        _compare(place, file)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = place.with_name(f".{place.name}.lock")
        # filelock may cut off what it opens: through links of both kinds before 3.20.1, and through
        # hard links in many later versions.
        own_file(lock, "the lock of a file", "fetch again").close()
        with FileLock(lock):
            # Another process may have been quicker.
            if not place.exists():
                _download(file, place, timeout, progress)
    return place


def _compare(place: Path, file: RemoteFile) -> None:
    """Refuse a file that is there but is not the published one; it is never overwritten."""
    # To open a pipe waits for somebody to write into it, for ever.
    if not place.is_file():
        raise TorchcapsError(
            f"{place} should be the published file, but is a folder, a pipe or a device; move it "
            f"away, and fetch again."
        )
    with place.open("rb") as held:
        check_published(held, place, file.sha256)


def _download(file: RemoteFile, place: Path, timeout: float, progress: Progress | None) -> None:
    partial = place.with_name(f"{place.name}.partial")
    answers = []
    for url in file.mirrors:
        try:
            _from_mirror(url, partial, file, timeout, progress)
        except _RefusedError as refused:
            answers.append(f"{url} {refused}")
        else:
            partial.replace(place)
            return
    if not _length(partial):
        partial.unlink(missing_ok=True)
    raise TorchcapsError(
        f"{place.name} could not be fetched: {'; '.join(answers)}; try again later, or put it at "
        f"{place} yourself."
    )


def _from_mirror(
    url: str, partial: Path, file: RemoteFile, timeout: float, progress: Progress | None
) -> None:
    """Complete the partial file, or say what the mirror did instead."""
    if _length(partial) > file.size:
        partial.unlink()
    longest = _length(partial)
    for attempt in count(1):
        begun = _length(partial) > 0
        try:
            found = _complete(url, partial, file, timeout, progress)
        except _DroppedError:
            if _length(partial) <= longest or attempt >= ATTEMPTS:
                raise
            longest = _length(partial)
            continue
        if found == file.sha256:
            return
        partial.unlink()
        # What was begun may come from another mirror, or from a disk that lost some of it.
        if not begun or attempt >= ATTEMPTS:
            raise _RefusedError(
                f"sent other bytes than were published: their SHA-256 begins with {found[:12]}"
            )
        longest = 0


def _length(path: Path) -> int:
    return path.lstat().st_size if path.is_file() else 0


def _complete(
    url: str, partial: Path, file: RemoteFile, timeout: float, progress: Progress | None
) -> str:
    """Append what a partial file lacks; return the SHA-256 of the whole."""
    with own_file(partial, "a file that was begun", "fetch again") as out:
        out.seek(0)
        seen, have = hashlib.sha256(), 0
        while piece := out.read(CHUNK):
            seen.update(piece)
            have += len(piece)
        if have < file.size:
            with _opened(url, have, timeout) as response:
                # A server that knows no ranges sends again what is here.
                skip = have - _first_byte(response, have, file.size)
                while have < file.size:
                    where = f"after {have} of {file.size} bytes"
                    piece = _next(response, min(CHUNK, skip or file.size - have), where)
                    if skip:
                        skip -= len(piece)
                        continue
                    out.write(piece)
                    seen.update(piece)
                    have += len(piece)
                    if progress is not None:
                        progress(partial.name.removesuffix(".partial"), have, file.size)
        out.flush()
        os.fsync(out.fileno())
    return seen.hexdigest()


def _opened(url: str, start: int, timeout: float) -> http.client.HTTPResponse:
    """Ask a server for a file, after redirects, none of which may leave http and https."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        *(urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler),
        *(urllib.request.HTTPErrorProcessor, urllib.request.HTTPDefaultErrorHandler),
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    headers = {"User-Agent": "torchcaps", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        for _ in range(REDIRECTS):
            scheme = urlsplit(url).scheme
            if scheme not in ("http", "https"):
                raise _RefusedError(f"sent on to an address of {scheme!r}, which is not followed")
            try:
                return cast(
                    http.client.HTTPResponse,
                    opener.open(urllib.request.Request(url, headers=headers), timeout=timeout),
                )
            except urllib.error.HTTPError as answer:
                answer.close()
                onward = answer.headers.get("Location")
                if answer.code not in _MOVED or onward is None:
                    phrase = http.client.responses.get(answer.code, "")
                    raise _RefusedError(f"answered {answer.code} {phrase}".rstrip()) from None
                url = urljoin(url, onward)
        raise _RefusedError(f"sent on {REDIRECTS} times without an end")
    except TimeoutError:
        raise _RefusedError(f"gave no answer in {timeout:g} seconds") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _RefusedError(f"could not be reached ({_why(error)})") from None


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
        error = error.reason
    # The words of other errors may be the server's.
    return error.strerror or str(error) if isinstance(error, OSError) else "garbled"


def _first_byte(response: http.client.HTTPResponse, start: int, size: int) -> int:
    """Say which byte of the file the body begins with; refuse an answer about another file."""
    if response.status == 206:
        found = _PART.fullmatch(response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != start:
            raise _RefusedError("sent another part of the file than it was asked for")
        first, announced = start, found[2]
    else:
        first, announced = 0, response.headers.get("Content-Length", "*")
    if announced not in ("*", str(size)):
        raise _RefusedError(f"has a file of another size than the {size} bytes of the published")
    return first


def _next(response: http.client.HTTPResponse, most: int, where: str) -> bytes:
    try:
        piece = response.read1(most)
    except TimeoutError:
        raise _DroppedError(f"fell silent {where}") from None
    except (OSError, http.client.HTTPException) as error:
        raise _DroppedError(f"broke off {where} ({_why(error)})") from None
    if not piece:
        raise _DroppedError(f"stopped {where}")
    return piece
