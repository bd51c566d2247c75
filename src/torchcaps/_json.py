"""JSON that a file holds, or in plain words why it holds none."""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# A result names every class of its set, which may have nearly a million: more than any other file.
MOST_BYTES = 1 << 26
# A row of metrics may hold two numbers for each pair of capsules, and of these a wide network has
# millions. A file has as many rows as there are epochs, so no number bounds its length.
MOST_OF_LINE = 1 << 28


def read_json(path: Path) -> Any:
    """Read what a file holds; a ValueError in plain words where that is no JSON."""
    return parsed(read_text(path))


def read_text(path: Path) -> str:
    """Read the text of a file; a ValueError in plain words where there is none."""
    _check_ordinary(path)
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ValueError(f"it has {size:,} bytes, and JSON of ours has at most {MOST_BYTES:,}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(why_not(error)) from None


def read_lines(path: Path) -> Iterator[str]:
    """Read each line in turn: a file of rows is longer than any of them."""
    _check_ordinary(path)
    with path.open("rb") as file:
        while line := file.readline(MOST_OF_LINE + 1):
            if len(line) > MOST_OF_LINE:
                raise ValueError(f"a line has more than {MOST_OF_LINE:,} bytes")
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(why_not(error)) from None


def _check_ordinary(path: Path) -> None:
    # A pipe would never end.
    if path.exists() and not path.is_file():
        raise ValueError("it is a folder or a device")


def parsed(text: str) -> Any:
    """Give the value that a text stands for; a ValueError in plain words where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(why_not(error)) from None


def why_not(error: Exception) -> str:
    """Say what a parser found, in words of ours where its own speak of Python."""
    if isinstance(error, RecursionError):
        return "its brackets are nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8"
    if "int_max_str_digits" in str(error):
        return "it holds a number of thousands of digits"
    return str(error)


def is_finite(value: object) -> bool:
    """Say whether it is a number that a run writes: out of JSON Python also reads NaN, Infinity,
    and integers that no float holds.

    >>> is_finite(1), is_finite(0.5), is_finite(float("nan")), is_finite("1")
    (True, True, False, False)
    >>> is_finite(True), is_finite(10**400)
    (False, False)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) <= sys.float_info.max
    return isinstance(value, float) and math.isfinite(value)
