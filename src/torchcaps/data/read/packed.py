"""Bytes of files that may be packed, cut short, or lie about their size.

Nothing is unpacked to disk, and no size is believed before that many bytes have been seen.
"""

import gzip
import hashlib
import os
import tarfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from torchcaps.errors import TorchcapsError

CHUNK = 1 << 20
# A tar archive is a row of blocks: a header, then the member's bytes, filled up with zeros.
BLOCK = 512


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, unpacked as it is read when its name ends in .gz or .tgz."""
    if not path.is_file():
        raise TorchcapsError(f"there is no file {path}; is the data folder right?")
    open_bytes = gzip.open if path.suffix in (".gz", ".tgz") else open
    try:
        with cast(IO[bytes], open_bytes(path, "rb")) as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TorchcapsError(
            f"{path} could not be unpacked ({error}); it is cut short or damaged: fetch it again."
        ) from None
    except OSError as error:
        raise TorchcapsError(
            f"{path} could not be read ({error.strerror}); is it yours, and is the disk well?"
        ) from None


def exactly(file: IO[bytes], count: int, path: Path) -> bytearray:
    """Read the next `count` bytes in small pieces: a lying header costs no memory."""
    values = bytearray()
    while len(values) < count:
        piece = file.read(min(CHUNK, count - len(values)))
        if not piece:
            raise TorchcapsError(
                f"{path} ends after {len(values)} of the {count} bytes that its header announces; "
                f"it is cut short: fetch it again."
            )
        values += piece
    return values


def whole(path: Path, *, most: int) -> bytearray:
    """Read a whole file of at most `most` bytes, which is looked up before anything is read."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise TorchcapsError(
                f"{path} has {size} bytes; a file of this kind has at most {most}: it is another "
                f"file."
            )
        return exactly(file, size, path)


def rest(file: IO[bytes], count: int, path: Path) -> bytearray:
    """Read the next `count` bytes, which must be the last ones."""
    values = exactly(file, count, path)
    if file.read(1):
        raise TorchcapsError(
            f"{path} holds more than the {count} bytes that its header announces; it is damaged: "
            f"fetch it again."
        )
    return values


def check_published(file: IO[bytes], path: Path, sha256: str) -> None:
    """Refuse a file, open at its begin, that is not the published one."""
    found = hashlib.file_digest(cast(BufferedReader, file), "sha256").hexdigest()
    if found != sha256:
        raise TorchcapsError(
            f"{path} is not the published file: its SHA-256 begins with {found[:12]}, where "
            f"{sha256[:12]} belongs; move it away, and fetch again."
        )
    file.seek(0)


def file_in(root: Path, names: Sequence[str], *, folders: Sequence[str] = (), holds: str) -> Path:
    """Find the first of these files that lies in root, or else in one of these folders of it."""
    for folder in (root, *(root / each for each in folders)):
        for name in names:
            if (folder / name).is_file():
                return folder / name
    raise TorchcapsError(
        f"{' or '.join(names)} is not in {root}; point to the folder that holds {holds}."
    )


def plain_or_gzipped(name: str) -> tuple[str, str]:
    """Give both names that a file may have."""
    return name, f"{name}.gz"


def known_numbers(
    path: Path, name: str, values: NDArray[np.number], known: range
) -> NDArray[np.int64]:
    """Take values for whole numbers of a range, one an image; refuse a file with any other."""
    # NaN is none of them either.
    wrong = ~np.isin(values, known)
    if wrong.any():
        at = int(wrong.argmax())
        steps = f" in steps of {known.step}" if known.step > 1 else ""
        raise TorchcapsError(
            f"{path} should hold {name} from {known[0]} to {known[-1]}{steps}, but image {at} has "
            f"{values[at]}; it is damaged or another file."
        )
    return values.astype(np.int64)


def tar_members(path: Path, requested: Collection[str], *, most: int) -> dict[str, bytearray]:
    """Read the requested files that a tar archive holds, gzipped or not, into memory.

    most: bytes that the whole archive may unpack to.
    """
    found = {}
    with opened(path) as file:
        # The first block of zeros is the end.
        while any(header := exactly(file, BLOCK, path)):
            name, size = _described(header, path)
            filled = -(-size // BLOCK) * BLOCK
            most -= BLOCK + filled
            if most < 0:
                raise TorchcapsError(
                    f"{path} unpacks to far more than the data set it should hold, with "
                    f"{name!r} of {size} bytes; it is another archive or a bomb."
                )
            if name not in requested:
                while filled > 0:
                    filled -= len(exactly(file, min(CHUNK, filled), path))
                continue
            if header[156] not in b"0\0":
                raise TorchcapsError(
                    f"{path} holds {name!r} as a link or folder where a file belongs; fetch it "
                    f"again from its authors."
                )
            found[name] = exactly(file, filled, path)[:size]
        # The checksum of a packed file comes at its very end.
        while (rest := len(file.read(CHUNK))) and most >= 0:
            most -= rest
    return found


def _described(header: bytearray, path: Path) -> tuple[str, int]:
    """Return name and size of a member, when its header is sound and its name stays inside."""
    try:
        member = tarfile.TarInfo.frombuf(bytes(header), "latin-1", "strict")
    except tarfile.HeaderError:
        raise TorchcapsError(
            f"{path} holds a file whose header has a wrong checksum; it is no tar archive, or "
            f"damaged: fetch it again."
        ) from None
    name = member.name.removeprefix("./")
    if name.startswith("/") or ".." in PurePosixPath(name).parts:
        raise TorchcapsError(
            f"{path} holds {name!r}, which would leave its folder; it is not the archive of its "
            f"authors, and nothing was unpacked."
        )
    if member.size < 0:
        raise TorchcapsError(
            f"{path} gives {name!r} no readable size; it is damaged: fetch it again."
        )
    return name, member.size
