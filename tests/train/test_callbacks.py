"""Between epochs: a row, then the state; and one line of talk on standard error."""

import re
from pathlib import Path

import pytest
import torch

from torchcaps.data import ImageSet
from torchcaps.train import Run
from torchcaps.train.batches import Batches
from torchcaps.train.callbacks import SaveState, ShowProgress


class Trainer:
    """What the callbacks see of a trainer."""

    def __init__(self, epoch: int, max_epochs: int = 3):
        self.current_epoch, self.max_epochs = epoch, max_epochs
        self.callback_metrics = {
            "loss": torch.tensor(0.5),
            "validation_accuracy": torch.tensor(0.25),
        }
        self.saved_after: list[int] = []
        self.is_global_zero = True
        self.strategy = self

    def reduce_boolean_decision(self, decision: bool, all: bool) -> bool:
        return decision

    def save_checkpoint(self, path: Path) -> None:
        self.saved_after = [row["epoch"] for row in Run(path.parent).metrics()]
        path.write_text(f"state {self.current_epoch}")


def end_of_epoch(run: Run, trainer: Trainer) -> None:
    callback = SaveState(run)
    callback.on_train_epoch_start(trainer, None)
    callback.on_train_epoch_end(trainer, None)


def test_every_epoch_adds_a_row_and_replaces_the_state(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for epoch in range(3):
        trainer = Trainer(epoch)
        end_of_epoch(run, trainer)
        # The row was there before the state was saved.
        assert trainer.saved_after == list(range(1, epoch + 2))
        assert run.state_file.read_text() == f"state {epoch}"
    assert [row["epoch"] for row in run.metrics()] == [1, 2, 3]
    row = run.metrics()[0]
    assert list(row) == ["epoch", "loss", "validation_accuracy", "seconds"]
    assert (row["loss"], row["validation_accuracy"]) == (0.5, 0.25)
    assert 0 <= row["seconds"] < 5
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "digests.json",
        "metrics.jsonl",
        "state.ckpt",
    ]


def test_rows_that_the_state_does_not_know_of_are_written_again(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write_metrics([{"epoch": epoch, "loss": 9.0} for epoch in (1, 2, 3)])
    end_of_epoch(run, Trainer(1))
    assert [(row["epoch"], row["loss"]) for row in run.metrics()] == [(1, 9.0), (2, 0.5)]


def test_a_state_that_cannot_be_saved_leaves_the_old_one(tmp_path: Path) -> None:
    run = Run(tmp_path)
    end_of_epoch(run, Trainer(0))

    class Full(Trainer):
        def save_checkpoint(self, path: Path) -> None:
            path.write_text("sta")
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        end_of_epoch(run, Full(1))
    assert run.state_file.read_text() == "state 0"
    end_of_epoch(run, Trainer(1))
    assert run.state_file.read_text() == "state 1"
    assert not list(tmp_path.glob("*.partial"))


def talk(label: str, trainer: Trainer) -> None:
    batches = five()
    progress = ShowProgress(label, batches)
    progress.on_train_start(trainer, None)
    progress.on_train_epoch_start(trainer, None)
    for k, batch in enumerate(batches):
        progress.on_train_batch_end(trainer, None, None, batch, k)
    assert progress.bar.tasks[0].completed == 5 * (trainer.current_epoch + 1)
    assert progress.bar.tasks[0].total == 15
    progress.on_train_epoch_end(trainer, None)
    progress.teardown(trainer, None, "fit")


def test_an_epoch_is_one_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    talk("twin", Trainer(0))
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "twin: epoch 1/3  loss 0.500  validation accuracy 25.0%  0 s\n"


def test_a_log_file_is_told_within_a_long_epoch(capsys, monkeypatch) -> None:
    monkeypatch.setattr("torchcaps.train.callbacks.QUIET_SECONDS", -1.0)
    talk("twin", Trainer(0))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert re.fullmatch(r"twin: epoch 1/3  2 of 5 images  \d+/s  about 0 min left", lines[0])


def test_a_continued_run_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    talk("twin", Trainer(2))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "twin: continuing after epoch 2"
    assert lines[1].startswith("twin: epoch 3/3  loss 0.500")


def five(**how: int) -> Batches:
    return Batches(
        ImageSet("five", torch.rand(5, 1, 2, 2), torch.zeros(5).long(), ("a",)), 2, **how
    )


def test_progress_goes_on_within_an_epoch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("torchcaps.train.callbacks.time.perf_counter", lambda: now)
    batches = five()
    batches.load_state_dict({"given": 1})
    progress, trainer = ShowProgress("twin", batches), Trainer(1)
    progress.on_train_start(trainer, None)
    assert capsys.readouterr().err == "twin: continuing in epoch 2 after 2 of 5 images\n"
    (task,) = progress.bar.tasks
    assert (task.completed, task.total) == (7, 15)
    given, rates = iter(batches), []
    for k in (1, 2):
        now += 4
        progress.on_train_batch_end(trainer, None, None, next(given), k)
        rates.append(task.fields["rate"])
    # Images of this stretch alone: 2 in 4 seconds, 3 in 8.
    assert rates == [2 / 4, 3 / 8]
    assert task.completed == 10
    progress.on_train_epoch_start(Trainer(2), None)
    now += 1
    progress.on_train_batch_end(Trainer(2), None, None, next(iter(batches)), 0)
    assert (task.completed, task.fields["rate"]) == (12, 2)


def test_of_several_devices_one_shows_how_far_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        batches = five(rank=rank, ranks=2)
        progress = ShowProgress("twin", batches)
        progress.on_train_start(Trainer(0), None)
        progress.on_train_batch_end(Trainer(0), None, None, next(iter(batches)), 0)
        # Images of all ranks.
        assert progress.bar.tasks[0].completed == 2
        progress.on_train_epoch_end(Trainer(0), None)
        assert capsys.readouterr().err.count("\n") == 1 - rank


@pytest.mark.parametrize("label", ["a label as long as this one is not a rare thing", "run [b]"])
def test_any_label_is_printed_as_it_is_on_one_line(
    capsys: pytest.CaptureFixture[str], label: str
) -> None:
    talk(label, Trainer(0))
    assert capsys.readouterr().err == (
        f"{label}: epoch 1/3  loss 0.500  validation accuracy 25.0%  0 s\n"
    )
