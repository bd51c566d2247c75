"""How tests call the command line, and what it must leave behind when it fails."""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from torchcaps.cli import main
from torchcaps.data import ImageSet, PartWholeSpec, part_whole

COMMAND = Path(sys.executable).with_name("torchcaps")
TRAIN = ["--model", "mitterreiter_5x16", "--data", "tiny", "--epochs", "1"]
TRAIN += ["--batch-size", "20", "--seed", "5"]


class Done(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Done]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command line in this process."""

    def call(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["torchcaps", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        return Done(stop.value.code or 0, *capsys.readouterr())

    return call


@cache
def tiny(split: str, root: object) -> ImageSet:
    return part_whole(split, {"train": 40, "test": 12}[split], spec=PartWholeSpec(size=24))


def well(done: Done) -> Done:
    """A command that ended as it should."""
    assert done.code == 0, done.err
    return done


def printed(done: Done) -> str:
    """What a command printed that ended as it should and said nothing beside it."""
    assert (done.code, done.err) == (0, "")
    return done.out


def assert_one_sentence(done: Done, words: str) -> None:
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("torchcaps: ")
    assert done.err.count("\n") == 1
    assert words in done.err
