"""Between epochs: a row, then the state; and one line of talk on standard error."""

import re
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from torchcaps.data import ImageSet
from torchcaps.train import Run
from torchcaps.train.batches import Batches
from torchcaps.train.callbacks import SaveState, ShowProgress
from torchcaps.train.ranks import Ranks


class Training:
    """What the watchers see of a loop."""

    def __init__(self, epoch, max_epochs=3):
        self.current_epoch, self.recipe = epoch, SimpleNamespace(epochs=max_epochs, keep="last")
        self.metrics = {"loss": 0.5, "validation_accuracy": 0.25}
        self.ranks = Ranks()
        self.should_stop, self.device = False, torch.device("cpu")


class OnGpu(Training):
    """What a GPU trains, whose weights change while the state is written."""

    weight = torch.zeros(2)

    def __init__(self, epoch):
        super().__init__(epoch, max_epochs=5)
        self.device = torch.device("cuda")

    def state(self):
        return {"epoch": self.current_epoch, "state_dict": {"weight": self.weight}}

    def save(self, path):
        torch.save(self.state(), path)


def test_on_a_gpu_a_state_is_written_seldom_and_beside_training(tmp_path, monkeypatch):
    now, begun = [1000.0], threading.Event()
    clock = SimpleNamespace(perf_counter=time.perf_counter, monotonic=lambda: now[0])
    monkeypatch.setattr("torchcaps.train.callbacks.time", clock)
    stream = SimpleNamespace(record_event=lambda: SimpleNamespace(synchronize=begun.wait))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    run = Run(tmp_path)
    callback = SaveState(run)

    def end_of(epoch, **changed):
        loop = OnGpu(epoch)
        vars(loop).update(changed)
        callback.on_train_epoch_end(loop)
        OnGpu.weight += 1

    def saved():
        state = torch.load(run.state_file, weights_only=True)
        return state["epoch"], float(state["state_dict"]["weight"][0])

    end_of(0)
    # It waits for the copy, and training goes on.
    assert not run.state_file.exists()
    begun.set()
    assert callback.writing is not None
    callback.writing.result()
    now[0] += 29
    end_of(1)
    assert saved() == (0, 0.0)
    assert callback.writing is None
    now[0] += 1
    end_of(2)
    # Half a minute after the first.
    assert callback.writing is not None
    now[0] += 1
    # The best network is written with its state.
    end_of(3, recipe=SimpleNamespace(epochs=5, keep="best"))
    assert saved() == (3, 3.0)
    end_of(4)
    assert saved() == (4, 4.0)
    callback.teardown(OnGpu(4), failed=False)
    assert [row["epoch"] for row in run.metrics()] == [1, 2, 3, 4, 5]
    assert not list(tmp_path.glob("*.partial"))


def talk(label, loop):
    batches = five()
    progress = ShowProgress(label, batches)
    progress.on_train_start(loop)
    progress.on_train_epoch_start(loop)
    for k, _ in enumerate(batches):
        progress.on_train_batch_end(loop, k)
    assert progress.bar.tasks[0].completed == 5 * (loop.current_epoch + 1)
    assert progress.bar.tasks[0].total == 15
    progress.on_train_epoch_end(loop)
    progress.teardown(loop, failed=False)


def test_a_log_file_is_told_within_a_long_epoch(capsys, monkeypatch):
    monkeypatch.setattr("torchcaps.train.callbacks.QUIET_SECONDS", -1.0)
    talk("twin", Training(0))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert re.fullmatch(r"twin: epoch 1/3  2 of 5 images  \d+/s  about 0 min left", lines[0])


def test_a_continued_run_says_so(capsys):
    talk("twin", Training(2))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "twin: continuing after epoch 2"
    assert lines[1].startswith("twin: epoch 3/3  loss 0.500")


def five(**how):
    return Batches(
        ImageSet("five", torch.rand(5, 1, 2, 2), torch.zeros(5).long(), ("a",)), 2, **how
    )


@pytest.mark.parametrize(
    ("labels", "more", "said"),
    [
        ([0, 0, 0, 1, 2], {"validation_balanced_accuracy": 1 / 3}, "  balanced accuracy 33.3%"),
        ([0, 0, 0, 1, 2], {}, "  balanced accuracy –"),
        ([0, 0, 1, 1, 2], {"validation_balanced_accuracy": 1 / 3}, ""),
    ],
    ids=["uneven", "a class was not held out", "even"],
)
def test_where_classes_are_uneven_an_accuracy_does_not_stand_alone(labels, more, said, capsys):
    images = ImageSet("five", torch.rand(5, 1, 2, 2), torch.tensor(labels), ("a", "b", "c"))
    loop, progress = Training(0), ShowProgress("twin", Batches(images, 2))
    loop.metrics |= more
    progress.on_train_epoch_start(loop)
    progress.on_train_epoch_end(loop)
    err = capsys.readouterr().err
    assert err == f"twin: epoch 1/3  loss 0.500  validation accuracy 25.0%{said}  0 s\n"


def test_progress_goes_on_within_an_epoch(capsys, monkeypatch):
    now = 100.0
    monkeypatch.setattr("torchcaps.train.callbacks.time.perf_counter", lambda: now)
    batches = five()
    batches.load_state_dict({"given": 1})
    progress, loop = ShowProgress("twin", batches), Training(1)
    progress.on_train_start(loop)
    assert capsys.readouterr().err == "twin: continuing in epoch 2 after 2 of 5 images\n"
    (task,) = progress.bar.tasks
    assert (task.completed, task.total) == (7, 15)
    given, rates = iter(batches), []
    for k in (1, 2):
        now += 4
        next(given)
        progress.on_train_batch_end(loop, k)
        rates.append(task.fields["rate"])
    # Images of this stretch alone: 2 in 4 seconds, 3 in 8.
    assert rates == [2 / 4, 3 / 8]
    assert task.completed == 10
    progress.on_train_epoch_start(Training(2))
    now += 1
    next(iter(batches))
    progress.on_train_batch_end(Training(2), 0)
    assert (task.completed, task.fields["rate"]) == (12, 2)


def test_of_several_devices_one_shows_how_far_they_are(capsys):
    for rank in (0, 1):
        batches = five(rank=rank, ranks=2)
        progress = ShowProgress("twin", batches)
        progress.on_train_start(Training(0))
        next(iter(batches))
        progress.on_train_batch_end(Training(0), 0)
        # Images of all ranks.
        assert progress.bar.tasks[0].completed == 2
        progress.on_train_epoch_end(Training(0))
        assert capsys.readouterr().err.count("\n") == 1 - rank


@pytest.mark.parametrize("label", ["twin", "a label as long as this one is not a rare", "run [b]"])
def test_an_epoch_is_one_line_on_standard_error_whatever_its_label(capsys, label):
    talk(label, Training(0))
    line = f"{label}: epoch 1/3  loss 0.500  validation accuracy 25.0%  0 s\n"
    assert capsys.readouterr() == ("", line)
