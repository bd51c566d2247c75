"""SIGKILL at random places of `torchcaps train` and `study run`: the same line goes on, to the same
bits."""

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

from torchcaps.study.record import read_records
from torchcaps.tasks.check_run import check_run
from torchcaps.train import Run

EPOCHS = 4

# Imports once, then forks a process a line, which is the command line: OUT. The workers of a study
# are that process, too.
NURSERY = """
import os, sys
sys.path.insert(0, "TESTS")
import torch
import lightning
from torchcaps import cli
from torchcaps.cli import application
from torchcaps.data import SOURCES, PartWholeSpec, part_whole
from torchcaps.study import pool
from torchcaps.train import fit
from study_line import in_this_process

pool.here = in_this_process

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
            words = [word.replace("OUT", line.strip()) for word in sys.argv[1:]]
            sys.argv = ["torchcaps", *words]
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        finally:
            os._exit(code)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
""".replace("TESTS", str(Path(__file__).parents[1]))
WORDS = ["train", "--model", "peer_sign_dynamic", "--data", "tiny", "--batch-size", "16"]
WORDS += ["--epochs", str(EPOCHS), "--out", "OUT"]
PRUNED = ["--set", "prune=magnitude", "--set", "prune_to=0.8", "--set", "prune_scope=layer"]
PRUNED += ["--set", "prune_ramp=2"]
STUDY = """
name = "few"
model = "peer_sign_dynamic"
data = "tiny"
epochs = 2
batch_size = 16
measure = ["accuracy", "confidence"]
[vary]
seed = [0, 1]
"""
STUDY_RUN = ["study", "run", "my.toml", "--out", "OUT/runs", "--evidence", "OUT/evidence"]


class Nursery:
    def __init__(self, folder: Path, *words: str):
        script = folder / "nursery.py"
        script.write_text(NURSERY)
        (folder / "my.toml").write_text(STUDY)
        self.process = subprocess.Popen(
            [sys.executable, str(script), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def run(self, out: Path, kill_after: float | None = None) -> int:
        """How a line ended, killed so long after it began if it was not done."""
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
    [(WORDS, 200), ([*WORDS, *PRUNED], 100)],
    ids=["whole", "pruned"],
    indirect=["nursery"],
)
def test_kills_of_the_command_line_change_no_bit(nursery, kills, tmp_path, capsys):
    seed = random.SystemRandom().randrange(2**32)
    draw = random.Random(seed)
    whole = Run(tmp_path / "whole")
    started = time.monotonic()
    assert nursery.run(whole.folder) == 0
    seconds = time.monotonic() - started
    found = {"seed": seed, "kills": 0, "runs": 0, "without_recipe": 0, "without_state": 0}
    while found["kills"] < kills:
        run = Run(tmp_path / f"run{found['runs']}")
        # Waits of all lengths, from the parsing of words to the last file.
        while (ended := nursery.run(run.folder, draw.uniform(0, 0.7 * seconds))) != 0:
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


def what_it_says(folder: Path) -> tuple:
    """The bits of every network of a study, and its record but for times."""
    (record,) = read_records(folder / "evidence", drafts=True).values()
    networks = {path.parent.name: path for path in folder.glob("runs/*/model.safetensors")}
    rows = [[{**row, "seconds": 0} for row in seed.per_epoch] for seed in record.seeds]
    values = [seed.values for seed in record.seeds]
    return {name: path.read_bytes() for name, path in networks.items()}, rows, values


@pytest.mark.slow
@pytest.mark.parametrize("nursery", [STUDY_RUN] * 5, ids="abcde", indirect=True)
def test_a_hundred_kills_of_a_study_change_no_number(nursery, tmp_path, capsys):
    seed = random.SystemRandom().randrange(2**32)
    draw = random.Random(seed)
    started = time.monotonic()
    assert nursery.run(tmp_path / "whole") == 0
    seconds = time.monotonic() - started
    whole = what_it_says(tmp_path / "whole")
    found = {"seed": seed, "kills": 0, "studies": 0, "without_run": 0, "with_network": 0}
    while found["kills"] < 100:
        folder = tmp_path / f"study{found['studies']}"
        while (ended := nursery.run(folder, draw.uniform(0, 0.7 * seconds))) != 0:
            assert ended == -signal.SIGKILL, seed
            found["kills"] += 1
            begun = [path.parent for path in folder.glob("runs/*/recipe.json")]
            found["without_run"] += not begun
            found["with_network"] += any((each / "model.safetensors").exists() for each in begun)
            states = [file.state for each in begun for file in check_run(each).files]
            assert "damaged" not in states, seed
        assert what_it_says(folder) == whole, seed
        found["studies"] += 1
    with capsys.disabled():
        print(json.dumps({**found, "seconds": round(time.monotonic() - started)}))
