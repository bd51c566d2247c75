"""Measures of classes after every epoch, and the best epoch by one of them."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch

from error_text import text_of
from laid_runs import tiny_images
from torchcaps.data import MultiMnist
from torchcaps.train import epoch_classes as of_epochs
from torchcaps.train import fit, make_recipe
from torchcaps.train.class_measures import MEASURES, class_measures, macro_values
from torchcaps.train.epoch_classes import EpochClasses
from torchcaps.train.images import parted
from torchcaps.train.ranks import Ranks
from torchcaps.train.selecting import in_words
from torchcaps.types import Output

TRAIN, TEST = map(tiny_images(40, size=20, n_classes=3), ("train", "test"))
LOGGED = {f"validation_{name}" for name in MEASURES}


def recipe(**changed):
    fields = {"model": "peer_sign_dynamic", "data": "own", "epochs": 1, "batch_size": 16}
    return make_recipe(**{**fields, "validation_share": 0.4, **changed})


def test_an_epoch_is_measured_over_all_held_out_images_together(tmp_path):
    run = fit(recipe(), tmp_path, own=(TRAIN, TEST))
    (row,) = run.metrics()
    _, held = parted(run.recipe, TRAIN)
    with torch.no_grad():
        out = run.model()(held.batch(slice(None)).pixels)
    assert len(held) == 16
    for name, value in macro_values(out, held.labels).items():
        assert row[f"validation_{name}"] == pytest.approx(value, abs=1e-6), name
    assert set(row) > LOGGED
    with torch.no_grad():
        out = run.model()(TEST.batch(slice(None)).pixels)
    expected = class_measures(out, TEST.labels, TEST.class_names).numbers()
    assert run.result()["measures"] == json.loads(json.dumps(expected))


@pytest.mark.parametrize("why", ["an absent class", "several objects", "nothing held out"])
def test_an_epoch_without_measures_names_none(why, tmp_path):
    train, test, share = TRAIN, TEST, 0.4
    if why == "an absent class":
        train = TRAIN.take((TRAIN.labels != 2).nonzero()[:, 0])
    if why == "several objects":
        train, test = MultiMnist(TRAIN, copies=1), MultiMnist(TEST, copies=1)
    if why == "nothing held out":
        share = 0.0
    run = fit(recipe(validation_share=share), tmp_path, own=(train, test))
    (row,) = run.metrics()
    assert not LOGGED & set(row)
    assert not [name for name in row if name.endswith("_auroc")]


@dataclass(frozen=True)
class Second(Ranks):
    """The last of several ranks, which hears what those before it gathered."""

    heard: list = field(default_factory=list)

    def gathered(self, mine):
        self.heard.append(mine)
        return self.heard


def test_ranks_measure_together():
    scores = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8], [0.6, 0.4]])
    labels = torch.tensor([0, 0, 1, 1, 1])
    heard, logged = [], {}
    loop = SimpleNamespace(log=lambda name, value: logged.update({name: value}))
    for mine in (slice(0, 3), slice(3, 5)):
        of_rank = EpochClasses(Second(heard=heard))
        of_rank.on_validation_start(loop)
        batch = SimpleNamespace(labels=labels[mine])
        of_rank.on_validation_batch_end(loop, Output(scores[mine], "lengths"), batch)
        of_rank.on_validation_epoch_end(loop)
    expected = macro_values(Output(scores, "lengths"), labels)
    assert logged == {f"validation_{name}": value for name, value in expected.items()}


@pytest.mark.parametrize("select_by", ["balanced_accuracy", "auroc"])
def test_the_best_epoch_is_that_of_the_chosen_measure(select_by, tmp_path, monkeypatch, capsys):
    # The second is the best; the third does not beat it, so that the fourth ends patience.
    told = iter([0.5, 0.7, 0.7, 0.6, 0.9])
    monkeypatch.setattr(of_epochs, "macro_values", lambda *_: {select_by: next(told)})
    chosen = recipe(epochs=5, keep="best", patience=2, select_by=select_by)
    run = fit(chosen, tmp_path / "run", own=(TRAIN, TEST))
    assert [row["epoch"] for row in run.metrics()] == [1, 2, 3, 4]
    assert run.result()["best_epoch"] == 2
    words = MEASURES[select_by].words
    assert f"  {words} 60.0%  " in capsys.readouterr().err.splitlines()[3]
    assert run.kept == f"epoch 2 of 4, the highest validation {words}"
    monkeypatch.undo()
    second = fit(recipe(epochs=2), tmp_path / "second", own=(TRAIN, TEST))
    kept = [each.model().state_dict() for each in (run, second)]
    torch.testing.assert_close(*kept, rtol=0, atol=0)


def test_what_the_best_is_told_by_has_words():
    assert in_words("loss") == "the lowest validation loss"
    assert in_words("accuracy") == "the highest validation accuracy"
    assert in_words("macro_f1") == "the highest validation macro F1"


def test_a_measure_that_is_found_to_be_missing_ends_training(tmp_path, monkeypatch):
    """Where labels are known only once images are shown."""
    two = TRAIN.take((TRAIN.labels != 2).nonzero()[:, 0])
    monkeypatch.setattr("torchcaps.train.prepare.check_selectable", lambda *_: None)
    text = text_of(lambda: fit(recipe(patience=1, select_by="auroc"), tmp_path, own=(two, TEST)))
    assert text == (
        'select_by = "auroc" needs held-out images of every class, but none is of some class; hold '
        'out more by validation_share, or take select_by = "loss".'
    )
