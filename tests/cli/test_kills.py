"""SIGKILL at random places of `torchcaps train` itself: the same line goes on, to the same bits."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchcaps.tasks.check_run import check_run
from torchcaps.train import Run

EPOCHS = 4

# Imports once, then forks a process a line, which is the command line: OUT.
NURSERY = """
import os, sys
import torch
import lightning
from torchcaps import cli
from torchcaps.cli import application
from torchcaps.data import SOURCES, PartWholeSpec, part_whole
from torchcaps.train import fit

torch.set_num_threads(1)
SOURCES["tiny"] = lambda split, root: part_whole(
    split, {"train": 48, "test": 12}[split], spec=PartWholeSpec(size=20)
)
print("ready", flush=True)
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        code = 1
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(null, number)
            sys.argv = ["torchcaps", "train", *sys.argv[1:], "--out", line.strip()]
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        finally:
            os._exit(code)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
WORDS = ["--model", "peer_sign_dynamic", "--data", "tiny", "--batch-size", "16"]
PRUNED = ["--set", "prune=magnitude", "--set", "prune_to=0.8", "--set", "prune_scope=layer"]
PRUNED += ["--set", "prune_ramp=2"]


class Nursery:
    def __init__(self, folder: Path, *more: str):
        script = folder / "nursery.py"
        script.write_text(NURSERY)
        self.process = subprocess.Popen(
            [sys.executable, str(script), *WORDS, *more, "--epochs", str(EPOCHS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def train(self, out: Path, kill_after: float | None = None) -> int:
        """How a train line ended, killed so long after it began if it was not done."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{out}\n")
        self.process.stdin.flush()
        pid = int(self.read())
        if kill_after is not None:
            time.sleep(kill_after)
            # It may be done.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return int(self.read())


@pytest.fixture
def nursery(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path, *request.param)
    with nursery.process:
        assert nursery.read() == "ready"
        yield nursery


def rows_of(run: Run) -> list[dict]:
    return [{**row, "seconds": 0} for row in run.metrics()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nursery", "kills"),
    [([], 200), (PRUNED, 100)],
    ids=["whole", "pruned"],
    indirect=["nursery"],
)
def test_kills_of_the_command_line_change_no_bit(nursery, kills, tmp_path, capsys):
    seed = random.SystemRandom().randrange(2**32)
    draw = random.Random(seed)
    whole = Run(tmp_path / "whole")
    started = time.monotonic()
    assert nursery.train(whole.folder) == 0
    seconds = time.monotonic() - started
    found = {"seed": seed, "kills": 0, "runs": 0, "without_recipe": 0, "without_state": 0}
    while found["kills"] < kills:
        run = Run(tmp_path / f"run{found['runs']}")
        # Waits of all lengths, from the parsing of words to the last file.
        while (ended := nursery.train(run.folder, draw.uniform(0, 0.7 * seconds))) != 0:
            assert ended == -signal.SIGKILL
            found["kills"] += 1
            found["without_recipe"] += not run.recipe_file.exists()
            found["without_state"] += not run.state_file.exists()
            if run.recipe_file.exists():
                states = {each.name: each.state for each in check_run(run.folder).files}
                assert "damaged" not in states.values(), (seed, states)
        assert run.model_file.read_bytes() == whole.model_file.read_bytes(), seed
        assert rows_of(run) == rows_of(whole), seed
        assert run.result()["test_accuracy"] == whole.result()["test_accuracy"], seed
        found["runs"] += 1
    with capsys.disabled():
        print(json.dumps({**found, "seconds": round(time.monotonic() - started)}))
