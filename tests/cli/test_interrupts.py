"""Ctrl-C at any moment: one sentence and exit code 130, or the signal itself at the second one."""

import os
import signal
import subprocess
import sys

import pytest

SENTENCE = (
    "torchcaps: interrupted; the same command starts again, or goes on where a run was saved.\n"
)
# Ctrl-C comes in the line marked; `commands` stands for what a command does.
PROGRAM = """
import os, signal, sys
from torchcaps import cli

def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            ctrl_c()

sys.meta_path.insert(0, Finder())
sys.argv = ["torchcaps", "models"]
# Tests in the background of a shell are begun deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
{more}
cli.main()
"""
TWICE = """
import atexit
atexit.register(ctrl_c)
"""


def ended(module, more=""):
    program = PROGRAM.format(module=module, more=more)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("module", ["typer", "torchcaps.cli.application", "torchcaps.cli.train"])
def test_ctrl_c_while_a_command_starts_is_one_sentence(module):
    done = ended(module)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", SENTENCE)


def test_ctrl_c_while_a_command_works_is_one_sentence(monkeypatch, capsys):
    import torchcaps.cli
    from torchcaps.cli import application

    def interrupted(prog_name):
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(application, "app", interrupted)
    try:
        with pytest.raises(SystemExit) as end:
            torchcaps.cli.main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert end.value.code == 130
    assert capsys.readouterr().err == SENTENCE


def test_a_second_ctrl_c_ends_at_once_without_a_word():
    done = ended("typer", TWICE)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, SENTENCE)


@pytest.mark.slow
def test_a_command_that_ignores_ctrl_c_goes_on_ignoring_it():
    """nohup and some schedulers start programs so."""
    done = ended("typer", "signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert (done.returncode, done.stderr) == (0, "")
    assert "capsnet" in done.stdout
