"""SIGKILL at random moments, within writes too: every file stays readable, no bit is lost."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from laid_runs import assert_readable
from torchcaps.data import SOURCES
from torchcaps.train import Run, make_recipe

EPOCHS, KILLS = 40, 20

# Imports once, then forks a process a line: FOLDER and how many bytes of a state it may write.
NURSERY = """
import os, signal, sys
from pathlib import Path
import torch
import torch._dynamo, torchmetrics  # what a first epoch would import
from torchcaps.data import SOURCES, PartWholeSpec, part_whole
from torchcaps.train import callbacks, fit, read_recipe
from torchcaps.train.loop import Loop

torch.set_num_threads(1)
SOURCES["tiny"] = lambda split, root: part_whole(
    split, {"train": 48, "test": 12}[split], spec=PartWholeSpec(size=20)
)
recipe = read_recipe(sys.argv[1])
save = Loop.save
start = callbacks.SaveState.on_train_start

def train(out, most):
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

print("ready", flush=True)
for line in sys.stdin:
    out, most = line.split()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            train(out, int(most))
            code = 0
        finally:
            os._exit(code)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


# Masks grow in the first half of the epochs, and are kept in the second.
PRUNED = {"prune": "magnitude", "prune_to": 0.8, "prune_ramp": EPOCHS // 2, "prune_scope": "layer"}


class Nursery:
    def __init__(self, folder: Path, **more: object):
        script, recipe = folder / "nursery.py", folder / "recipe.json"
        script.write_text(NURSERY)
        fields = {"model": "peer_sign_dynamic", "data": "tiny", "batch_size": 16, **more}
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(SOURCES, "tiny", lambda split, root: None)
            recipe.write_text(make_recipe(**fields, epochs=EPOCHS).model_dump_json())
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(recipe)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def train(
        self,
        out: Path,
        *,
        kill_after: float | None = None,
        in_training: bool = True,
        most: int = -1,
    ) -> int:
        """Train in a process, killed so long after training began, or after the process did; how it
        ended."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{out} {most}\n")
        self.process.stdin.flush()
        pid = int(self.read())
        if kill_after is not None:
            if in_training:
                assert self.read() == "training"
            time.sleep(kill_after)
            os.kill(pid, signal.SIGKILL)
        while (ended := self.read()) == "training":
            pass
        return int(ended)


@pytest.fixture(params=[{}, PRUNED], ids=["whole", "pruned"])
def nursery(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path, **request.param)
    with nursery.process:
        assert nursery.read() == "ready"
        yield nursery


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_no_bit(nursery: Nursery, tmp_path: Path) -> None:
    draw = random.Random(0)
    whole, run = Run(tmp_path / "whole"), Run(tmp_path / "killed")
    began = time.perf_counter()
    assert nursery.train(whole.folder) == 0
    # Its row does not count how long its state is written.
    an_epoch = (time.perf_counter() - began) / EPOCHS
    steps = set()
    size = whole.state_file.stat().st_size
    for kill in range(KILLS):
        if kill % 4 == 3:
            ended = nursery.train(run.folder, most=draw.randrange(size + 1))
        else:
            # Two of three while it trains, one while it begins.
            wait, begun = draw.uniform(0, 3 * an_epoch), kill % 4 != 1
            ended = nursery.train(run.folder, kill_after=wait, in_training=begun)
        assert ended == -signal.SIGKILL
        if run.folder.exists():
            assert_readable(run.folder)
        if run.state_file.exists():
            steps.add(torch.load(run.state_file, weights_only=True)["global_step"])
    # It came on from kill to kill, and there was something left to do.
    assert len(steps) >= 5
    assert not run.is_done
    assert nursery.train(run.folder) == 0
    assert run.model_file.read_bytes() == whole.model_file.read_bytes()
    for rows in zip(run.metrics(), whole.metrics(), strict=True):
        one, two = ({**row, "seconds": 0} for row in rows)
        assert one == two
    for what in ("test_accuracy", "sparsity"):
        assert run.result().get(what) == whole.result().get(what)
