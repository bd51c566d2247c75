"""SIGKILL at random places of `torchcaps train` and `study run`: the same line goes on, to the same
bits."""

import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from laid_runs import rows
from nursery import Nursery
from torchcaps.study.record import read_records
from torchcaps.tasks.check_run import check_run
from torchcaps.train import Run

EPOCHS = 4

# The command line, of which OUT is the line that is told. The workers of a study are this process.
START = """
sys.path.insert(0, "TESTS")
import lightning
from torchcaps import cli
from torchcaps.cli import application
from torchcaps.study import pool
from torchcaps.train import fit
from study_line import in_this_process

pool.here = in_this_process

def train(out):
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    sys.argv = ["torchcaps", *(word.replace("OUT", out) for word in sys.argv[1:])]
    cli.main()
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


@pytest.fixture
def nursery(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nursery]:
    (tmp_path / "my.toml").write_text(STUDY)
    nursery = Nursery(tmp_path, START, *request.param)
    with nursery.process:
        yield nursery


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
    assert nursery.run(f"{whole.folder}") == 0
    seconds = time.monotonic() - started
    found = {"seed": seed, "kills": 0, "runs": 0, "without_recipe": 0, "without_state": 0}
    while found["kills"] < kills:
        run = Run(tmp_path / f"run{found['runs']}")
        # Waits of all lengths, from the parsing of words to the last file.
        while (ended := nursery.run(f"{run.folder}", draw.uniform(0, 0.7 * seconds))) != 0:
            assert ended == -signal.SIGKILL
            found["kills"] += 1
            found["without_recipe"] += not run.recipe_file.exists()
            found["without_state"] += not run.state_file.exists()
            if run.recipe_file.exists():
                states = {each.name: each.state for each in check_run(run.folder).files}
                assert "damaged" not in states.values(), (seed, states)
        assert run.model_file.read_bytes() == whole.model_file.read_bytes(), seed
        assert rows(run) == rows(whole), seed
        assert run.result()["test_accuracy"] == whole.result()["test_accuracy"], seed
        found["runs"] += 1
    with capsys.disabled():
        print(json.dumps({**found, "seconds": round(time.monotonic() - started)}))


def what_it_says(folder: Path) -> tuple:
    """The bits of every network of a study, and its record but for times."""
    (record,) = read_records(folder / "evidence", drafts=True).values()
    networks = {path.parent.name: path for path in folder.glob("runs/*/model.safetensors")}
    told = [[{**row, "seconds": 0} for row in seed.per_epoch] for seed in record.seeds]
    values = [seed.values for seed in record.seeds]
    return {name: path.read_bytes() for name, path in networks.items()}, told, values


@pytest.mark.slow
@pytest.mark.parametrize("nursery", [STUDY_RUN] * 5, ids="abcde", indirect=True)
def test_a_hundred_kills_of_a_study_change_no_number(nursery, tmp_path, capsys):
    seed = random.SystemRandom().randrange(2**32)
    draw = random.Random(seed)
    started = time.monotonic()
    assert nursery.run(f"{tmp_path}/whole") == 0
    seconds = time.monotonic() - started
    whole = what_it_says(tmp_path / "whole")
    found = {"seed": seed, "kills": 0, "studies": 0, "without_run": 0, "with_network": 0}
    while found["kills"] < 100:
        folder = tmp_path / f"study{found['studies']}"
        while (ended := nursery.run(f"{folder}", draw.uniform(0, 0.7 * seconds))) != 0:
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
