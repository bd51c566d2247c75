"""What holds for every command: version, help, and names that are unknown."""

import runpy
import sys
from importlib.metadata import version

import pytest

from cli.command_line import TRAIN, well
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
def test_help_is_data(call, words):
    done = call(*words)
    assert "Usage: torchcaps" in done.out + done.err
    assert "Traceback" not in done.err
    assert done.code == (0 if words else 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "No such command 'trian'"),
        (["train", *TRAIN, "--learner", "1"], "No such option: --learner"),
        # Which network is not guessed, though a run lies here.
        (["eval"], "Missing argument"),
    ],
)
def test_what_typer_refuses_ends_with_2(run_folder, call, monkeypatch, words, said):
    monkeypatch.chdir(run_folder)
    done = call(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.parametrize("command", ["eval", "predict", "doctor"])
def test_help_says_what_is_printed(call, command):
    done = well(call(command, "--help"))
    assert f"Usage: torchcaps {command}" in done.out
    assert "Prints" in done.out
