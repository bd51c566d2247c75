"""Pickles of numbers, text, lists, dicts and numpy arrays of integers, and of nothing else.

A pickle is a program for a small stack machine, two of whose instructions call any function by its
name. This machine has the harmless instructions alone. The names that numpy writes an array with
are recognised, never looked up, and the array becomes a view of the pickle's own bytes; so nothing
is ever called, and no instruction costs more memory than the file that holds it.

A restricted `pickle.Unpickler` would be shorter and calls nothing either, but a file can still hurt
it: in Python 3.11 ten bytes that number one memo take two gigabytes, and nested tuples as the key
of a dict overflow the stack and end the process (tests/data/test_cifar.py has both files).
"""

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from torchcaps.errors import TorchcapsError

# CIFAR-100's training file, the longest, has about 200,000 instructions.
MOST_STEPS = 1_000_000

_RECONSTRUCT = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
_KNOWN = {*_RECONSTRUCT, "numpy ndarray", "numpy dtype", "_codecs encode"}


class _Name(str):
    """A function or class that a pickle names; a mere word here."""


@dataclass
class _Dtype:
    code: str


class _Blank:
    """An array whose state is still to come."""


def read_pickle(content: bytes | bytearray, path: Path) -> object:
    """Return what a pickle describes; its arrays and long strings are views of `content`.

    path: for the sentence about a pickle that is damaged or asks for more.
    """
    machine = _Machine(memoryview(content), path)
    try:
        return machine.run()
    except (IndexError, KeyError, UnicodeError):
        machine.damaged()


class _Machine:
    def __init__(self, content: memoryview, path: Path) -> None:
        self.content, self.path, self.at = content, path, 0
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def damaged(self) -> NoReturn:
        raise TorchcapsError(
            f"{self.path} breaks off or makes no sense at byte {self.at}; it is no pickle of plain "
            f"numbers, or damaged: fetch it again."
        ) from None

    def refuse(self, wish: str) -> NoReturn:
        raise TorchcapsError(
            f"{self.path} asks for {wish} at byte {self.at}, where only numbers, text and numpy "
            f"arrays are read; nothing of it was run: fetch it from its authors."
        )

    def run(self) -> object:
        for _ in range(MOST_STEPS):
            code = self.content[self.at]
            self.at += 1
            if code == ord("."):
                return self.stack.pop()
            if code not in _STEPS:
                self.refuse(f"instruction 0x{code:02x}")
            _STEPS[code](self)
        self.refuse(f"more than {MOST_STEPS} steps")

    def take(self, count: int) -> memoryview:
        if not 0 <= count <= len(self.content) - self.at:
            self.damaged()
        self.at += count
        return self.content[self.at - count : self.at]

    def number(self, kind: str) -> int:
        return int(struct.unpack(kind, self.take(struct.calcsize(kind)))[0])

    def push(self, value: object) -> None:
        self.stack.append(value)

    def marked(self) -> list[object]:
        """Take off the stack what lies above the last mark."""
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def take_tuple(self, count: int) -> None:
        if len(self.stack) < count:
            self.damaged()
        values = tuple(self.stack[-count:])
        self.stack[-count:] = [values]

    def extend(self, values: list[object]) -> None:
        whole = self.stack[-1]
        if not isinstance(whole, list):
            self.damaged()
        whole += values

    def set_items(self, values: list[object]) -> None:
        whole = self.stack[-1]
        keys = [bytes(key) if isinstance(key, memoryview) else key for key in values[::2]]
        known = all(type(key) in (str, bytes, int) for key in keys)
        if not isinstance(whole, dict) or len(values) % 2 or not known:
            self.damaged()
        whole.update(zip(keys, values[1::2], strict=True))

    def name(self, module: object, name: object) -> None:
        wish = f"{module} {name}"
        if not isinstance(module, str) or not isinstance(name, str) or len(wish) > 200:
            self.damaged()
        if wish not in _KNOWN:
            self.refuse(f"{module}.{name}".encode("unicode_escape").decode())
        self.push(_Name(wish))

    def line(self) -> str:
        """Read text up to the end of the line, as protocol 2 writes names."""
        end = bytes(self.content[self.at : self.at + 200]).find(b"\n")
        return bytes(self.take(end + 1)).decode().removesuffix("\n")

    def call(self) -> None:
        """Recognise the three calls that numpy writes, instead of making them."""
        given, name = self.stack.pop(), self.stack.pop()
        match name, given:
            case _Name(), (_Name(), tuple(), _) if name in _RECONSTRUCT:
                self.push(_Blank())
            case _Name("numpy dtype"), (str() | bytes() as code, *_):
                self.push(_Dtype(_text(code)))
            case _Name("_codecs encode"), (str() as text, "latin1"):
                self.push(text.encode("latin-1"))
            case _:
                self.damaged()

    def build(self) -> None:
        state, whole = self.stack.pop(), self.stack[-1]
        match whole, state:
            case _Dtype(), (3, str() | bytes() as order, *_):
                whole.code = _text(order) + whole.code
            case _Blank(), (1, tuple() as shape, _Dtype() as dtype, fortran, data):
                self.stack[-1] = self.array(shape, dtype.code, fortran is True, data)
            case _:
                self.damaged()

    def array(
        self, shape: tuple[object, ...], code: str, fortran: bool, data: object
    ) -> NDArray[np.integer]:
        if not re.fullmatch(r"[|<>][iu][1248]", code):
            self.refuse(f"an array of {code!r}".encode("unicode_escape").decode())
        if not isinstance(data, bytes | memoryview):
            self.damaged()
        sizes = [size for size in shape if type(size) is int and 0 < size <= len(data)]
        if not 0 < len(sizes) == len(shape) <= 4:
            self.damaged()
        dtype = np.dtype(code)
        if math.prod(sizes) * dtype.itemsize != len(data):
            self.damaged()
        return np.frombuffer(data, dtype).reshape(sizes, order="F" if fortran else "C")

    def get(self, place: int) -> None:
        self.push(self.memo[place])

    def put(self, place: int) -> None:
        self.memo[place] = self.stack[-1]


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _with_last(machine: _Machine) -> list[object]:
    value, key = machine.stack.pop(), machine.stack.pop()
    return [key, value]


# What the protocols of Python 2, 0 aside, need for such a file, then what 3 and 4 add.
_STEPS: dict[int, Callable[[_Machine], object]] = {
    0x80: lambda m: m.take(1),  # the protocol's number
    ord("("): lambda m: m.marks.append(len(m.stack)),
    ord("}"): lambda m: m.push({}),
    ord("]"): lambda m: m.push([]),
    ord(")"): lambda m: m.push(()),
    ord("N"): lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    ord("K"): lambda m: m.push(m.number("<B")),
    ord("M"): lambda m: m.push(m.number("<H")),
    ord("J"): lambda m: m.push(m.number("<i")),
    0x8A: lambda m: m.push(int.from_bytes(m.take(m.number("<B")), "little", signed=True)),
    ord("U"): lambda m: m.push(bytes(m.take(m.number("<B")))),
    ord("T"): lambda m: m.push(m.take(m.number("<i"))),
    ord("X"): lambda m: m.push(bytes(m.take(m.number("<I"))).decode()),
    ord("t"): lambda m: m.push(tuple(m.marked())),
    0x85: lambda m: m.take_tuple(1),
    0x86: lambda m: m.take_tuple(2),
    0x87: lambda m: m.take_tuple(3),
    ord("a"): lambda m: m.extend([m.stack.pop()]),
    ord("e"): lambda m: m.extend(m.marked()),
    ord("s"): lambda m: m.set_items(_with_last(m)),
    ord("u"): lambda m: m.set_items(m.marked()),
    ord("q"): lambda m: m.put(m.number("<B")),
    ord("r"): lambda m: m.put(m.number("<I")),
    ord("h"): lambda m: m.get(m.number("<B")),
    ord("j"): lambda m: m.get(m.number("<I")),
    ord("c"): lambda m: m.name(m.line(), m.line()),
    ord("R"): lambda m: m.call(),
    ord("b"): lambda m: m.build(),
    ord("C"): lambda m: m.push(bytes(m.take(m.number("<B")))),
    ord("B"): lambda m: m.push(m.take(m.number("<I"))),
    0x8C: lambda m: m.push(bytes(m.take(m.number("<B"))).decode()),
    0x93: lambda m: m.name(*_with_last(m)),
    0x94: lambda m: m.put(len(m.memo)),
    0x95: lambda m: m.take(8),  # the length of a frame
}
