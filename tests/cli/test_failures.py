"""How a command ends that failed: one sentence, an exit code and no traceback."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from cli.command_line import COMMAND, TRAIN, Done, assert_one_sentence
from torchcaps.train.loop import Loop


def in_a_process(folder: Path, *words: str, seconds: int = 60, **more: str) -> Done:
    """A command in a process of its own, with more in its environment."""
    ended = subprocess.run(
        [COMMAND, *words],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=os.environ | more,
        cwd=folder,
    )
    return Done(ended.returncode, ended.stdout, ended.stderr)


def test_a_failing_process_leaves_one_sentence_and_no_traceback(tmp_path):
    # It is known without torch, whose import takes longer than all the rest.
    done = in_a_process(tmp_path, "models", "capsnt")
    assert_one_sentence(done, "model 'capsnt' is unknown; did you mean 'capsnet'?")
    assert not list(tmp_path.iterdir())


OUT_OF_MEMORY = {
    "processor": RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"),
    "GPU": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
    "Python": MemoryError(),
}


@pytest.fixture(params=OUT_OF_MEMORY)
def without_memory(request, monkeypatch):
    """Let memory run out in the first step."""

    def step(*_: object) -> None:
        raise OUT_OF_MEMORY[request.param]

    monkeypatch.setattr(Loop, "training_step", step)


@pytest.mark.usefixtures("without_memory")
def test_running_out_of_memory_is_one_sentence(call, tmp_path):
    done = call("train", *TRAIN, "--out", tmp_path / "run")
    assert_one_sentence(done, "take a smaller --batch-size or network: torchcaps estimate")


@pytest.mark.usefixtures("without_memory")
def test_no_state_is_blamed_where_memory_runs_out(trained, call, tmp_path):
    """It was told as damaged, with the advice to remove it."""
    run = shutil.copytree(trained, tmp_path / "run")
    done = call("train", *TRAIN, "--epochs", "2", "--out", run)
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("torchcaps: memory ran out (")


LONG = [
    ["perturb"],
    ["compare", "x", "--import"],
    ["data", "check"],
    ["models"],
    ["study", "claims", "--paper"],
    ["study", "claims", "--status"],
    ["study", "status", "--by"],
    ["estimate", "--model", "capsnet", "--option"],
]


@pytest.mark.parametrize("words", LONG)
def test_a_word_of_thousands_of_letters_is_not_repeated(call, words):
    done = call(*words, "9" * 5000)
    assert_one_sentence(done, f"{'9' * 99}…")
    # Some list all names that there are.
    assert len(done.err) < 1500


@pytest.mark.parametrize(
    ("words", "said"),
    [
        # What follows differs from version to version.
        (["{}"], "No such command"),
        (["train", "--{}"], "No such option"),
        (["models", "x", "{}"], "Got unexpected extra argument"),
        (["study", "claims", "{}"], "Got unexpected extra argument"),
    ],
)
def test_typer_repeats_no_word_of_thousands_of_letters(call, words, said):
    done = call(*(word.format("\x1b[2J" + "9" * 5000) for word in words))
    last = done.err.splitlines()[-1]
    assert done.code == 2
    assert "\x1b" not in done.err
    assert last.startswith(f"Error: {said}")
    assert "\\x1b[2J999999" in last
    assert last.endswith("9…")
    assert len(last) < 320


@pytest.mark.parametrize("out", ["/dev/null/run", "/proc/run"])
def test_a_place_that_cannot_be_written_is_told_in_one_line(call, out):
    done = call("train", *TRAIN, "--out", out)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1].startswith("torchcaps: ")
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_a_torchvision_of_another_torch_is_told_in_a_process_of_its_own(tmp_path):
    package = tmp_path / "torchvision"
    about = tmp_path / "torchvision-0.20.0.dist-info"
    package.mkdir()
    about.mkdir()
    fault = 'raise RuntimeError("operator torchvision::nms does not exist")'
    (package / "__init__.py").write_text(fault)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.20.0\n")
    line = "train --model convnet_fc --data toy-2d --option kernel=1 --epochs 1 --out run"
    words = [*line.split(), "--tensorboard"]
    assert_one_sentence(
        in_a_process(tmp_path, *words, seconds=120, PYTHONPATH=str(tmp_path)),
        "torchvision is installed but cannot be imported (operator torchvision::nms does not "
        "exist); it was built for another torch: install the one that fits, or pip uninstall",
    )
