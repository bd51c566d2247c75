"""SIGKILL at random moments, within writes too: every file stays readable, no bit is lost."""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from laid_runs import assert_readable, rows
from nursery import Nursery
from torchcaps.train import Run, make_recipe

EPOCHS, KILLS = 40, 20

# A line says FOLDER and how many bytes of a state may be written.
START = """
import signal
import torch._dynamo, torchmetrics  # what a first epoch would import
from torchcaps.train import callbacks, fit, read_recipe
from torchcaps.train.loop import Loop

recipe = read_recipe(sys.argv[1])
save = Loop.save
start = callbacks.SaveState.on_train_start

def train(line):
    out, most = line.split()
    most = int(most)

    def save_and_die(self, path):
        save(self, path)
        os.truncate(path, min(most, os.path.getsize(path)))
        os.kill(os.getpid(), signal.SIGKILL)

    def start_and_tell(self, loop):
        start(self, loop)
        os.write(1, b"training\\n")

    if most >= 0:
        Loop.save = save_and_die
    callbacks.SaveState.on_train_start = start_and_tell
    fit(recipe, out)
"""
# Masks grow in the first half of the epochs, and are kept in the second.
PRUNED = {"prune": "magnitude", "prune_to": 0.8, "prune_ramp": EPOCHS // 2, "prune_scope": "layer"}


DATA = {"tiny": lambda split, root: None}


@pytest.fixture(params=[{}, PRUNED], ids=["whole", "pruned"])
def nursery(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nursery]:
    fields = {"model": "peer_sign_dynamic", "data": "tiny", "batch_size": 16, **request.param}
    recipe = tmp_path / "recipe.json"
    recipe.write_text(make_recipe(**fields, epochs=EPOCHS).model_dump_json())
    nursery = Nursery(tmp_path, START, str(recipe))
    with nursery.process:
        yield nursery


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_no_bit(nursery: Nursery, tmp_path: Path) -> None:
    draw = random.Random(0)
    whole, run = Run(tmp_path / "whole"), Run(tmp_path / "killed")
    began = time.perf_counter()
    assert nursery.run(f"{whole.folder} -1") == 0
    # Its row does not count how long its state is written.
    an_epoch = (time.perf_counter() - began) / EPOCHS
    steps = set()
    size = whole.state_file.stat().st_size
    for kill in range(KILLS):
        if kill % 4 == 3:
            ended = nursery.run(f"{run.folder} {draw.randrange(size + 1)}")
        else:
            # Two of three while it trains, one while it begins.
            wait, first = draw.uniform(0, 3 * an_epoch), "" if kill % 4 == 1 else "training"
            ended = nursery.run(f"{run.folder} -1", wait, first=first)
        assert ended == -signal.SIGKILL
        if run.folder.exists():
            assert_readable(run.folder)
        if run.state_file.exists():
            steps.add(torch.load(run.state_file, weights_only=True)["global_step"])
    # It came on from kill to kill, and there was something left to do.
    assert len(steps) >= 5
    assert not run.is_done
    assert nursery.run(f"{run.folder} -1") == 0
    assert run.model_file.read_bytes() == whole.model_file.read_bytes()
    assert rows(run) == rows(whole)
    for what in ("test_accuracy", "sparsity"):
        assert run.result().get(what) == whole.result().get(what)
