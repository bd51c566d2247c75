"""The sentences of errors, as a user reads them: one at a time, or all those of a folder.

A file of errors has a call on a line of its own, and below it, indented, the sentence that it ends
in. To write those of a folder anew: PYTHONPATH=tests python tests/error_text.py tests/ops"""

import importlib.util
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torchcaps.errors import TorchcapsError


def text_of(call: Callable[[], object]) -> str:
    """The one line that `call` ends in."""
    with pytest.raises(TorchcapsError) as error:
        call()
    text = str(error.value)
    assert "\n" not in text
    return text


def said_by(call: str, names: dict[str, Any]) -> str:
    """The sentence that a call of a file ends in, without the addresses of objects, and without the
    routings in the middle of the list of all, so that the next one changes no file."""
    text = re.sub("0x[0-9a-f]+", "0x…", text_of(lambda: eval(call, names)))
    return re.sub("distance, dynamic, em, .*?uniform", "distance, dynamic, …, uniform", text)


def settled(text: str) -> str:
    """A sentence without what the next network or version changes: of the names that it lists two
    stay, and what Python, torch or Pillow say in brackets goes."""
    text = re.sub(r"known: (\S+, \S+), .*?(?=; |\. |\.$)", r"known: \1, …", text)
    others = "Expect|Invalid value|mat1|cannot identify"
    return re.sub(rf"\((?:{others}).*?\)(?=[.;,]| and|$)", "(…)", text)


def cases_of(path: Path) -> list[Any]:
    """The calls of a file of errors, each with its sentence."""
    return [pytest.param(call, " ".join(lines), id=call) for call, lines in _read(path)]


def write(path: Path, said: Callable[[str], str]) -> None:
    """Put what the calls of a file say today below them; comments stay where they are."""
    written = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            written.append(line)
        if line and not line.startswith((" ", "#")):
            written += textwrap.wrap(
                said(line),
                width=100,
                initial_indent="    ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    path.write_text("\n".join(written) + "\n", encoding="utf-8")


def _read(path: Path) -> Iterator[tuple[str, list[str]]]:
    call, said = "", list[str]()
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            said.append(line.strip())
            continue
        if call:
            yield call, said
        call, said = ("" if line.startswith("#") else line), []
    if call:
        yield call, said


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        # By the name that pytest gives it, which some sentences say.
        name = ".".join([*folder.parts, "test_errors"])
        spec = importlib.util.spec_from_file_location(name, folder / "test_errors.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        write(module.ERRORS, module.said)
