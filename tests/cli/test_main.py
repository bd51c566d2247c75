"""What holds for every command: version, help, and names that are unknown."""

import runpy
import sys
from importlib.metadata import version

import pytest

from cli.command_line import Call, well
from torchcaps import __version__


def test_version_is_that_of_the_package_and_of_torch(call):
    assert call("--version") == (0, f"torchcaps {__version__}, torch {version('torch')}\n", "")


def test_the_module_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["__main__.py", "--version"])
    with pytest.raises(SystemExit) as done:
        runpy.run_module("torchcaps", run_name="__main__")
    assert not done.value.code
    assert capsys.readouterr().out.startswith("torchcaps ")


@pytest.mark.parametrize("words", [[], ["--help"], ["train", "--help"]])
def test_help_is_data(call: Call, words: list[str]) -> None:
    done = call(*words)
    assert "Usage: torchcaps" in done.out + done.err
    assert "Traceback" not in done.err
    assert done.code == (0 if words else 2)


def test_an_unknown_command_ends_with_2(call: Call) -> None:
    done = call("trian")
    assert (done.code, done.out) == (2, "")
    assert "No such command 'trian'" in done.err


@pytest.mark.parametrize("command", ["eval", "predict", "doctor"])
def test_help_says_what_is_printed(call, command):
    done = well(call(command, "--help"))
    assert f"Usage: torchcaps {command}" in done.out
    assert "Prints" in done.out
