"""Ctrl-C at any moment: one sentence and exit code 130, or the signal itself at the second one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.command_line import TRAIN, well
from torchcaps.train import Run

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

# Ctrl-C comes within the only epoch, and once more when all is over.
TRAINING = """
import atexit, os, signal, sys
from cli.command_line import tiny
from torchcaps import cli
from torchcaps.data import SOURCES
from torchcaps.train.loop import Loop

def training_step(self, batch, batch_idx, step=Loop.training_step):
    os.kill(os.getpid(), signal.SIGINT)
    return step(self, batch, batch_idx)

atexit.register(os.kill, os.getpid(), signal.SIGINT)
SOURCES["tiny"], Loop.training_step = tiny, training_step
sys.argv = ["torchcaps", "train", *sys.argv[1:]]
signal.signal(signal.SIGINT, signal.default_int_handler)
cli.main()
"""


def ended(module, more=""):
    return python(PROGRAM.format(module=module, more=more))


def python(program, *words):
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[1],
        # As many threads as the tests have, or weights differ in their last bits.
        env={**os.environ, "OMP_NUM_THREADS": "1"},
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


def test_ctrl_c_within_an_epoch_saves_the_step_and_the_same_line_goes_on(call, trained, tmp_path):
    run, whole = Run(tmp_path / "run"), Run(trained)
    done = python(TRAINING, *TRAIN, "--out", run.folder)
    # What the second one is told, where the first alone is 130; no ignored exception is printed.
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "")
    assert done.stderr == (
        f"torchcaps: training was told to stop; the same command continues {run.folder} from where "
        f"it is.\n"
    )
    assert run.state_file.exists()
    went_on = well(call("train", *TRAIN, "--out", run.folder))
    assert "continuing in epoch 1 after 20 of 36 images" in went_on.err
    assert run.model_file.read_bytes() == whole.model_file.read_bytes()
