"""What studies and their files say of what they cannot run, in errors.txt, word by word."""

import contextlib
import tempfile
from pathlib import Path

import pytest

from error_text import cases_of, said_by, settled
from study.test_own import EXAMPLE
from torchcaps.study import look
from torchcaps.study.own import read_study
from torchcaps.study.pool import run_study
from torchcaps.study.settings import Settings

ERRORS = Path(__file__).with_name("errors.txt")


def written(text):
    Path("my.toml").write_text(text)
    return read_study("my.toml")


def with_line(line):
    """The study of the example with one line more."""
    return written(f"{line}\n{EXAMPLE}")


def instead(old, new):
    """The study of the example with other words."""
    assert old in EXAMPLE
    return written(EXAMPLE.replace(old, new))


def measuring(statistic, data="part-whole", options=""):
    fields = f'model = "mitterreiter_grid"\ndata = "{data}"\nmeasure = ["{statistic}"]'
    return written(f"{fields}\n[options]\n{options}\n")


def run(**settings):
    return run_study(with_line('name = "x"'), Settings(Path("runs"), Path("evidence"), **settings))


VARIED = '["dynamic", "uniform"]\nbatch_size = [32, 64]'


def said(call):
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        text = said_by(call, vars(look) | globals())
        assert not Path("runs").exists()
    return settled(text)


@pytest.mark.parametrize(("call", "sentence"), cases_of(ERRORS))
def test_what_is_told(call, sentence):
    assert said(call) == sentence
