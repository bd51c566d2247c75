"""Two processes train as one: the same weights in both, near those of one process, one folder."""

import os
import socket
import subprocess
import sys

import pytest
import safetensors.torch
import torch

from error_text import text_of
from laid_runs import rows, tiny_images
from torchcaps.train import Run, fit, make_recipe
from torchcaps.train.ranks import Ranks, join

# 43 images to train on, 22 to validate with: the last batch of both is one image, and rank 1 has
# nothing of it; of the others rank 0 has one more.
SIZES = {"train": 65, "test": 13}
FIELDS = {"data": "tiny", "epochs": 2, "batch_size": 21, "validation_share": 0.34}
FIELDS |= {"optimiser": "sgd"}
STEPS = 3

CHILD = """
import os, signal, sys
from pathlib import Path
import torch
from torchcaps.data import SOURCES, PartWholeSpec, part_whole
from torchcaps.errors import Interrupted
from torchcaps.train import fit, read_recipe
from torchcaps.train.loop import Loop

torch.set_num_threads(1)
SIZES = {"train": 65, "test": 13}
SOURCES["tiny"] = lambda split, root: part_whole(
    split, SIZES[split], spec=PartWholeSpec(size=20)
)
recipe, out, dies_at = read_recipe(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
step, models = Loop.training_step, []

def training_step(self, batch, batch_idx):
    if self.global_step == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)
    if not batch_idx:
        models.append(self.model)
    return step(self, batch, batch_idx)

Loop.training_step = training_step
fit(recipe, out / "run")
rank = torch.distributed.get_rank()
torch.save(models[-1].state_dict(), out / f"rank{rank}.pt")
if dies_at == -1:
    for name in ("plain", "sums"):
        fit(read_recipe(out / f"{name}.json"), out / name)
    stops = 0
    for _ in range(20):
        try:
            fit(recipe, out / "steps", time_budget=1e-6)
            break
        except Interrupted:
            stops += 1
    assert stops == 6, stops
"""


DATA = {"tiny": tiny_images(SIZES["train"], n_test=SIZES["test"], size=20)}


def recipe():
    """Of a network with a decoder and statistics of the batch."""
    return make_recipe(model="mitterreiter_5x16", learning_rate=0.05, **FIELDS)


def plain(learning_rate=50.0, **changed):
    """Of one without either, whose gradients are small."""
    fields = {**FIELDS, **changed}
    return make_recipe(model="peer_sign_dynamic", learning_rate=learning_rate, **fields)


def sums(**changed):
    """Of updates that go by three batches of eleven images and one of ten: of the last one both
    ranks have five, of the others rank 0 has one more."""
    return plain(**{"batch_size": 11, "accumulate": 4, **changed})


def words_of(folder, dies_at):
    folder.mkdir(exist_ok=True)
    for make in (recipe, plain, sums):
        (folder / f"{make.__name__}.json").write_text(make().model_dump_json())
    (folder / "child.py").write_text(CHILD)
    return [str(folder / "child.py"), str(folder / "recipe.json"), str(folder), str(dies_at)]


def quiet(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **more}


def by_torchrun(folder, dies_at=-1):
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = run + words_of(folder, dies_at)
    return subprocess.run(words, capture_output=True, text=True, timeout=300, env=quiet())


def by_srun(folder):
    """As srun starts two tasks on one node."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    job = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2", "SLURM_NNODES": "1"}
    job |= {"SLURM_NODEID": "0", "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "caps"}
    job |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = [sys.executable, *words_of(folder, -2)]
    tasks = [
        subprocess.Popen(
            words,
            stderr=subprocess.PIPE,
            text=True,
            env=quiet(**job, SLURM_PROCID=rank, SLURM_LOCALID=rank),
        )
        for rank in "01"
    ]
    ended = [task.communicate(timeout=300)[1] for task in tasks]
    return [(task.returncode, err) for task, err in zip(tasks, ended, strict=True)]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    done = by_torchrun(folder)
    assert done.returncode == 0, done.stderr
    # One run, told once.
    assert done.stderr.count("mitterreiter_5x16: epoch 2/2") == 2
    return folder


@pytest.mark.cluster
def test_two_processes_hold_the_same_weights_and_write_one_run(two):
    first, second = (torch.load(two / f"rank{rank}.pt", weights_only=True) for rank in (0, 1))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    saved = safetensors.torch.load_file(Run(two / "run").model_file)
    assert all(torch.equal(first[name], saved[name]) for name in saved)
    # As test_fit.py has them by name.
    assert len([*(two / "run").iterdir()]) == 7


@pytest.mark.cluster
@pytest.mark.parametrize("make", [plain, sums])
def test_two_processes_give_what_one_gives_but_for_rounding(two, tmp_path, make):
    both, one = Run(two / make.__name__), fit(make(), tmp_path / "one")
    start = fit(make(learning_rate=1e-12), tmp_path / "start")
    began, expected, found = (
        safetensors.torch.load_file(run.model_file) for run in (start, one, both)
    )
    for name, weight in expected.items():
        moved = (weight - began[name]).abs().max()
        assert moved > 0.001, name
        # The mean of the ranks' means would be off by percents of that.
        assert (found[name] - weight).abs().max() <= 1e-4 * moved, name
    for ours, theirs in zip(rows(both), rows(one), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    ours, theirs = both.result(), one.result()
    for name in (
        *("test_accuracy", "commonest", "constant", "measures"),
        *("test_images", "training_images", "digests"),
    ):
        assert ours[name] == theirs[name]


@pytest.mark.cluster
def test_two_processes_stopped_after_every_step_end_with_the_same_weights(two):
    assert (two / "steps" / "model.safetensors").read_bytes() == Run(
        two / "run"
    ).model_file.read_bytes()
    for ours, theirs in zip(rows(Run(two / "steps")), rows(Run(two / "run")), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.cluster
def test_a_kill_of_both_is_continued_bit_for_bit_by_srun(two, tmp_path):
    killed = by_torchrun(tmp_path, dies_at=STEPS + 2)
    assert killed.returncode != 0
    run = Run(tmp_path / "run")
    assert [row["epoch"] for row in run.metrics()] == [1]
    assert not run.is_done
    for code, err in by_srun(tmp_path):
        assert code == 0, err
    assert run.model_file.read_bytes() == Run(two / "run").model_file.read_bytes()
    assert rows(run) == rows(Run(two / "run"))


@pytest.mark.parametrize(
    "environment",
    [
        {},
        # sbatch alone, without srun: many tasks are asked for, one process runs.
        {"SLURM_NTASKS": "4", "SLURM_PROCID": "0"},
        {"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        {"RANK": "0", "GROUP_RANK": "0", "LOCAL_RANK": "0"}
        | {"LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": "1"},
    ],
)
def test_one_process_is_alone(monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert join() == Ranks()
    assert not torch.distributed.is_initialized()


def test_tasks_that_do_not_fill_their_nodes_are_refused(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "3")
    monkeypatch.setenv("SLURM_NNODES", "2")
    assert text_of(join) == (
        "3 tasks on 2 nodes cannot be shared evenly; give srun --ntasks-per-node, one task a "
        "device."
    )


def test_alone_one_does_what_the_first_does():
    alone = Ranks()
    assert alone.first_does(lambda: 3) == 3
    assert alone.total(5) == 5
    with pytest.raises(ZeroDivisionError):
        alone.first_does(lambda: 1 // 0)
