"""SIGKILL at random places of `torchcaps train` and `study run`: the same line goes on, to the same
bits."""

import json
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from laid_runs import rows
from nursery import Nursery
from study_line import what_it_says
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
def nursery(request, tmp_path):
    (tmp_path / "my.toml").write_text(STUDY)
    nursery = Nursery(tmp_path, START, *request.param)
    with nursery.process:
        yield nursery


def killed(nursery, folder, count, capsys, look):
    """Give each folder in which a line came to its end that was killed at random places until then;
    all in all it is killed so often, and a look is taken at the folder whenever it was."""
    seed = random.SystemRandom().randrange(2**32)
    # For whoever sees a test fail.
    print("seed", seed)
    draw, started = random.Random(seed), time.monotonic()
    assert nursery.run(f"{folder}/whole") == 0
    seconds, found = time.monotonic() - started, Counter(seed=seed)
    while found["kills"] < count:
        place = folder / f"run{found['runs']}"
        # Waits of all lengths, from the parsing of words to the last file.
        while (ended := nursery.run(f"{place}", draw.uniform(0, 0.7 * seconds))) != 0:
            assert ended == -signal.SIGKILL
            found.update(kills=1, **look(place))
        found["runs"] += 1
        yield place
    with capsys.disabled():
        print(json.dumps({**found, "seconds": round(time.monotonic() - started)}))


def assert_undamaged(run):
    states = {each.name: each.state for each in check_run(run).files}
    assert "damaged" not in states.values(), states


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nursery", "kills"),
    [(WORDS, 200), ([*WORDS, *PRUNED], 100)],
    ids=["whole", "pruned"],
    indirect=["nursery"],
)
def test_kills_of_the_command_line_change_no_bit(nursery, kills, tmp_path, capsys):
    def look(folder):
        run = Run(folder)
        if run.recipe_file.exists():
            assert_undamaged(folder)
        files = {"recipe": run.recipe_file, "state": run.state_file}
        return {f"without_{name}": not file.exists() for name, file in files.items()}

    whole = Run(tmp_path / "whole")
    for run in map(Run, killed(nursery, tmp_path, kills, capsys, look)):
        assert run.model_file.read_bytes() == whole.model_file.read_bytes()
        assert rows(run) == rows(whole)
        assert run.result()["test_accuracy"] == whole.result()["test_accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize("nursery", [STUDY_RUN] * 5, ids="abcde", indirect=True)
def test_a_hundred_kills_of_a_study_change_no_number(nursery, tmp_path, capsys):
    def look(folder):
        begun = [path.parent for path in folder.glob("runs/*/recipe.json")]
        for each in begun:
            assert_undamaged(each)
        is_trained = any((each / "model.safetensors").exists() for each in begun)
        return {"without_run": not begun, "with_network": is_trained}

    for folder in killed(nursery, tmp_path, 100, capsys, look):
        assert what_it_says(folder) == what_it_says(tmp_path / "whole")
