"""Stopping early and keeping the best, by epochs told to the callbacks one by one."""

from types import SimpleNamespace

import pytest
import torch

from torchcaps import create_model, load
from torchcaps.train import make_recipe
from torchcaps.train.folder.run import Run
from torchcaps.train.ranks import Ranks
from torchcaps.train.stopping import KeepBest, StopAtAccuracy, StopWithoutProgress


def loop(**fields):
    ranks = Ranks()
    first = {"should_stop": False, "global_step": 0, "ranks": ranks, "current_epoch": 0}
    return SimpleNamespace(**first | fields)


def epochs(callback, values, by="loss"):
    """The state of the loop after each epoch with one of these validation losses, or of another
    measure."""
    run = loop()
    for epoch, value in enumerate(values):
        run.current_epoch = epoch
        run.metrics = {f"validation_{by}": value}
        callback.on_validation_end(run)
        yield run


@pytest.mark.parametrize(
    ("by", "values"),
    [
        # The best once more is no progress, so the sixth epoch is the second without.
        ("loss", [3.0, 2.0, 2.5, 1.9, 1.9, 2.0, 1.0]),
        ("auroc", [0.5, 0.6, 0.55, 0.7, 0.7, 0.6, 0.9]),
    ],
)
def test_patience_counts_epochs_since_the_best(by, values):
    found = epochs(StopWithoutProgress(2, by), values, by=by)
    assert [run.should_stop for run in found] == [False] * 5 + [True, True]


def test_the_state_of_a_run_that_knew_the_loss_alone_goes_on():
    after = StopWithoutProgress(2)
    after.load_state_dict({"lowest": 1.0, "since": 1})
    assert [run.should_stop for run in epochs(after, [0.9, 1.1, 1.2])] == [False, False, True]


def test_patience_survives_a_restart():
    before, after = StopWithoutProgress(3), StopWithoutProgress(3)
    list(epochs(before, [1.0, 2.0, 2.0]))
    after.load_state_dict(before.state_dict())
    assert [run.should_stop for run in epochs(after, [1.5])] == [True]
    run = loop()
    after.on_train_start(run)
    assert run.should_stop


def accuracy_stop(values, every=10):
    recipe = make_recipe(model="capsnet", data="mnist", stop_at=0.95, stop_every=every)
    left = list(values)
    return StopAtAccuracy(recipe, lambda: left.pop(0)), left


def test_accuracy_is_looked_at_between_epochs_once_it_is_near():
    stop, left = accuracy_stop([0.5, 0.945, 0.94, 0.96])
    run = loop()

    def epoch(first, last):
        for step in range(first, last + 1):
            run.global_step = step
            stop.on_train_batch_end(run, 0)
            if run.should_stop:
                return step
        stop.on_validation_end(run)
        return None

    assert epoch(1, 100) is None
    assert left == [0.945, 0.94, 0.96]
    # Near now, and at step 210 not there, at step 220 it is.
    assert epoch(101, 200) is None
    assert left == [0.94, 0.96]
    assert epoch(201, 300) == 220
    assert stop.seen == {"accuracy": 0.96, "step": 220, "reached": True}
    # The epoch that is cut short ends with a validation: the same step is not looked at again.
    stop.on_validation_end(run)
    assert left == []


def test_a_target_never_reached_says_what_was():
    stop, _ = accuracy_stop([0.5, 0.94])
    run = loop()
    for run.global_step in (100, 200):
        stop.on_validation_end(run)
    assert not run.should_stop
    assert stop.seen == {"accuracy": 0.94, "step": 200, "reached": False}


def test_a_run_cut_off_after_it_reached_its_target_does_not_go_on():
    stop, _ = accuracy_stop([0.95])
    stop.on_validation_end(loop(global_step=7))
    again, _ = accuracy_stop([])
    again.load_state_dict(stop.state_dict())
    run = loop()
    again.on_train_start(run)
    assert run.should_stop


@pytest.mark.parametrize("writes", [True, False])
def test_the_weights_of_the_lowest_loss_are_kept(tmp_path, writes):
    model = create_model("peer_sign_dynamic")
    of_run = Run(tmp_path)
    best, file = KeepBest(of_run), of_run.best_file
    kept = []
    first = next(model.parameters())
    for epoch, loss in enumerate([2.0, 1.0, 1.5, 1.0]):
        with torch.no_grad():
            first.fill_(epoch)
        run = loop(current_epoch=epoch, ranks=Ranks(0 if writes else 1, 2), model=model)
        run.metrics = {"validation_loss": loss}
        best.on_validation_end(run)
        if writes:
            kept.append(next(load(file).parameters()).flatten()[0].item())
    assert kept == ([0.0, 1.0, 1.0, 1.0] if writes else [])
    assert file.exists() == writes
    assert best.state_dict() == {"lowest": 1.0, "epoch": 2}
