"""A seeded mutator of bytes and of JSON."""

import json
import random
from typing import Any

# What readers stumble over.
WORDS = [b"\x00", b"\xff" * 8, b"NaN", b"1e999", b"-1", b"9" * 5000, b"[" * 3000, b"{}", b"null"]
WORDS += [
    b"../../etc/passwd",
    b"\xf0\x9f\x98\x80",
    b"\x1b[2J",
    b"PK\x03\x04",
    b"\x80\x04\x95",
    b"\n",
]
ODD: list[Any] = [None, True, False, 0, -1, 1, 10**6, 2**31, 2**63, 10**400, 1.5, 1e308, -0.0]
# Python reads no more than 4,300 digits.
ODD += [10**4299, "9" * 5000]
ODD += [
    "",
    "x",
    "x" * 300,
    "\x00",
    "\x1b[31m",
    "../..",
    "$x^{$",
    "ünïcode\u202e",
    "-1",
    "nan",
    "1,2",
]
ODD += [[], {}, [[]], [0, 0], [1, 28, 28], [10**6] * 3, {"a": 1}, [None], ["x"] * 50]


def odd_value(draw: random.Random) -> Any:
    return draw.choice(ODD)


def mutated(content: bytes, draw: random.Random) -> bytes:
    """The same with one to four faults: bits flipped, ends lost, words put in, parts moved; JSON
    now and then with another value, or without one."""
    if draw.random() < 0.4:
        changed = _json_mutated(content, draw)
        if changed is not None:
            return changed
    for _ in range(draw.randint(1, 4)):
        content = draw.choice(FAULTS)(content, draw)
    return content


def _flip(content: bytes, draw: random.Random) -> bytes:
    at = _place(content, draw)
    flipped = bytes([byte ^ 1 << draw.randrange(8) for byte in content[at : at + 1]])
    return content[:at] + flipped + content[at + 1 :]


def _cut(content: bytes, draw: random.Random) -> bytes:
    return content[: _place(content, draw)]


def _insert(content: bytes, draw: random.Random) -> bytes:
    at = _place(content, draw)
    return content[:at] + draw.choice(WORDS) + content[at:]


def _overwrite(content: bytes, draw: random.Random) -> bytes:
    at, word = _place(content, draw), draw.choice(WORDS)
    return content[:at] + word + content[at + len(word) :]


def _move(content: bytes, draw: random.Random) -> bytes:
    one, two = sorted((_place(content, draw), _place(content, draw)))
    return content[:one] + content[two:] + content[one:two]


def _noise(content: bytes, draw: random.Random) -> bytes:
    at, size = _place(content, draw), draw.randint(1, 64)
    return content[:at] + draw.randbytes(size) + content[at + size :]


FAULTS = (_flip, _flip, _flip, _cut, _insert, _overwrite, _move, _noise)


def _place(content: bytes, draw: random.Random) -> int:
    """Mostly near the start, where headers are; 0 of nothing, and then there is a byte."""
    reach = len(content) if draw.random() < 0.5 else min(len(content), 400)
    return draw.randrange(reach) if reach else 0


def _json_mutated(content: bytes, draw: random.Random) -> bytes | None:
    try:
        text = content.decode()
        lines = [json.loads(line) for line in ([text] if text[:2] == "{\n" else text.splitlines())]
        draw.choice(lines)
    except (ValueError, IndexError, RecursionError):
        return None
    at = draw.randrange(len(lines))
    lines[at] = value_mutated(lines[at], draw)
    return "\n".join(json.dumps(line) for line in lines).encode()


def value_mutated(value: Any, draw: random.Random) -> Any:
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        what = draw.random()
        if what < 0.2:
            return {name: each for name, each in value.items() if name != key}
        if what < 0.3:
            return {**value, str(odd_value(draw))[:50]: odd_value(draw)}
        return {**value, key: value_mutated(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.7:
        at = draw.randrange(len(value))
        return [*value[:at], value_mutated(value[at], draw), *value[at + 1 :]]
    return odd_value(draw)
