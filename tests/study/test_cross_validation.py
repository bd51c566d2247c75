"""A set as pathologists have: few patients, several pictures of each, one class nearly everything.

The pictures are drawn: a patient has a tint of their own, which tells nothing of new patients, and
the class is in how coarse the grain is.
"""

import csv
import importlib
import itertools
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import balanced_accuracy_score, f1_score, recall_score, roc_auc_score

from error_text import text_of
from torchcaps.data import ImageSet, folds, image_folder
from torchcaps.data.read.listed import Listed
from torchcaps.study import CrossValidation, crossval
from torchcaps.study.cross_validation import Plan, plan_of
from torchcaps.study.paired import holm
from torchcaps.tasks import evaluate, evaluate_file
from torchcaps.tasks.evaluation import Evaluation
from torchcaps.train import Run, make_recipe

CLASSES = {"benign": 24, "in situ": 5, "=malignant": 4}
BEAT = "To beat: always saying 'benign' has an accuracy of 72.7% and a balanced one of 33.3%."
GROUPS = "/(p[0-9]+)_"


def histology(root: Path) -> Path:
    """Three pictures of each patient: 72 of 99 are benign."""
    rng, patient = np.random.default_rng(0), 0
    for grain, (name, patients) in enumerate(CLASSES.items()):
        (root / name).mkdir(parents=True)
        for _ in range(patients):
            tint, patient = rng.integers(0, 120, 3), patient + 1
            for picture in range(3):
                coarse = rng.integers(0, 100, (2 ** (4 - grain),) * 2 + (1,))
                pixels = np.kron(coarse, np.ones((2**grain, 2**grain, 1))) + tint
                named = root / name / f"p{patient:03}_{picture}.png"
                Image.fromarray(pixels.astype(np.uint8)).save(named)
    return root


def recipe(**changed):
    fields = {"model": "efficient_capsnet", "data": "folder", "groups": GROUPS, "epochs": 1}
    small = {"batch_size": 33, "options": {"decoder": False}}
    return make_recipe(**fields | small | changed)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return histology(tmp_path_factory.mktemp("data") / "histology")


@pytest.fixture(scope="module")
def done(root, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "cv"
    return crossval(recipe(), out, root=root, folds=3), out


def test_every_fold_of_every_network_is_a_run(done):
    found, out = done
    runs = [Run(each) for each in sorted(out.iterdir()) if each.is_dir()]
    assert [(run.recipe.model, run.recipe.fold) for run in runs] == [
        (model, (fold, 3))
        for model in ("efficient_capsnet", "efficient_convnet")
        for fold in (1, 2, 3)
    ]
    same = {"model": "x", "options": {}, "fold": None, "channels_last": True}
    assert len({run.recipe.model_copy(update=same).digest() for run in runs}) == 1
    sizes = [size for _, _, size in found.plan.networks]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.05)
    # Whatever is asked of the run of a fold is of its own test.
    alone = evaluate_file(runs[1].folder)
    index = found.plan.tests[1]
    assert alone.files == tuple(np.array(found.plan.images.files)[index])
    torch.testing.assert_close(found.judged[0].scores[index], alone.scores)


def test_no_group_is_in_two_folds_and_every_picture_is_judged_once(done, root):
    found, _ = done
    assert sorted(np.concatenate(found.plan.tests)) == list(range(99))
    groups = np.array(found.plan.images.groups)
    folds = [set(groups[test]) for test in found.plan.tests]
    assert sum(map(len, folds)) == len(set.union(*folds)) == 33
    for judged in found.judged:
        assert judged.files == image_folder(root, groups=GROUPS, fold=(0, 3)).files
        assert [Path(file).parent.name for file in judged.files] == [
            judged.class_names[label] for label in judged.labels
        ]


def test_pooled_numbers_are_those_of_scikit_learn(done):
    found, out = done
    numbers = json.loads((out / "crossval.json").read_text())
    for judged, written in zip(found.judged, numbers["networks"], strict=True):
        labels, said = judged.labels.numpy(), judged.scores.argmax(1).numpy()
        scores = judged.scores.double()
        if judged.scores_are == "logits":
            scores = scores.softmax(1)
        expected = {
            "balanced_accuracy": balanced_accuracy_score(labels, said),
            "macro_f1": f1_score(labels, said, average="macro"),
            "auroc": np.mean([roc_auc_score(labels == k, scores[:, k]) for k in range(3)]),
        }
        for name, value in expected.items():
            assert written["measures"][name]["value"] == pytest.approx(value, abs=1e-6)
        by_fold = [
            recall_score(labels[test], said[test], average="macro") for test in found.plan.tests
        ]
        assert written["balanced_accuracy_by_fold"] == pytest.approx(by_fold, abs=1e-6)
        assert tuple(written["interval"]) == judged.interval
        assert f"{judged.accuracy:.1%} [{100 * judged.interval[0]:.1f}, " in found.text()
        assert written["commonest"] == {"class": "benign", "share": 72 / 99}
    (pair,) = numbers["comparisons"]
    assert pair["networks"] == ["efficient_capsnet", "efficient_convnet"]
    for test in ("balanced_accuracy", "auroc", "accuracy"):
        # One pair needs no correction.
        assert pair[test]["p_corrected"] == pair[test]["p"]


def test_nothing_can_be_read_as_good(done):
    """No accuracy stands without the line that it has to beat."""
    found, _ = done
    text = found.text()
    assert "nobody said" not in text
    assert "99 images, 33 groups, 3 folds; no fold parts a group" in text
    assert BEAT in text
    for line in text.splitlines():
        if "accuracy" in line and "balanced accuracy" not in line and "McNemar" not in line:
            assert "72.7%" in line, line
    words = found.words()
    for label, *_ in found.plan.networks:
        said = next(line for line in words if line.startswith(f"{label} is"))
        assert re.search(r"; its accuracy lies \d+\.\d points (below|above) 72\.7%\.$", said)
    assert any(line.startswith("By balanced accuracy over the folds ") for line in words)


def test_the_table_of_predictions_holds_no_formula(done):
    found, out = done
    with (out / "predictions.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 2 * 99
    assert [row["network"] for row in rows[::99]] == ["efficient_capsnet", "efficient_convnet"]
    first = rows[0]
    assert first["file"] == f"'{found.plan.images.files[0]}"
    assert first["group"] == found.plan.images.groups[0]
    assert first["fold"] == str(found.plan.fold_of[0] + 1)
    assert "score '=malignant" in first
    assert first["label"] == "'=malignant"
    assert not any(cell.startswith("=") for row in rows for cell in row.values())


def test_the_same_call_trains_nothing_twice(done, root, monkeypatch):
    found, out = done
    monkeypatch.setattr(importlib.import_module("torchcaps.train.fit"), "prepare", None)
    again = crossval(recipe(), out, root=root, folds=3)
    assert again.numbers() == found.numbers()


def test_what_was_stopped_goes_on(done, root, tmp_path, monkeypatch):
    """Stopped before the second fold is judged, it comes to the same numbers."""
    with monkeypatch.context() as patch:
        patch.setattr("torchcaps.study.cross_validation.evaluate", stop_at(2))
        with pytest.raises(KeyboardInterrupt):
            crossval(recipe(), tmp_path / "cv", root=root, folds=3, against=())
    assert not (tmp_path / "cv" / "crossval.json").exists()
    found = crossval(recipe(), tmp_path / "cv", root=root, folds=3, against=())
    assert found.numbers()["networks"] == done[0].numbers()["networks"][:1]


def stop_at(count: int):
    calls = itertools.count(1)

    def evaluating(*args, **kwargs):
        if next(calls) == count:
            raise KeyboardInterrupt
        return evaluate(*args, **kwargs)

    return evaluating


@pytest.mark.slow
def test_what_was_killed_goes_on(done, root, tmp_path):
    """SIGKILL in the midst of the third run: the same call comes to the same numbers."""
    line = [sys.executable, "-m", "torchcaps", "crossval", "--root", root, "--groups", GROUPS]
    line += ["--folds", "3", "--epochs", "1", "--set", "batch_size=33", "--option", "decoder=false"]
    process = subprocess.Popen([*line, "--out", tmp_path / "cv"], stderr=subprocess.DEVNULL)
    third = tmp_path / "cv" / "1-efficient_capsnet-fold-2-of-3" / "recipe.json"
    while not third.is_file() and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "cv" / "crossval.json").exists()
    assert crossval(recipe(), tmp_path / "cv", root=root, folds=3).numbers() == done[0].numbers()


def test_pictures_that_changed_since_are_refused(done, root, tmp_path):
    shutil.copytree(root, tmp_path / "histology")
    Image.new("RGB", (16, 16)).save(tmp_path / "histology" / "benign" / "p001_0.png")
    shutil.copytree(done[1], tmp_path / "cv")
    assert "is done, and its fold has other images now; put them back" in text_of(
        lambda: crossval(recipe(), tmp_path / "cv", root=tmp_path / "histology", folds=3)
    )


def plan(root, folds=3, against=(), own=None, **changed):
    return plan_of(recipe(**changed), root, own, folds, against)


def test_what_it_takes_is_said_before(root):
    text = plan(root, against=("matched",), epochs=200).text()
    counted = [line.split() for line in text.splitlines()[2:6]]
    assert " ".join(counted[0]) == "fold images groups of =malignant of benign of in situ"
    assert np.array(counted[1:], int).sum(0).tolist() == [6, 99, 33, 12, 72, 15]
    # Two batches an epoch: 99 images less a third of them and a tenth of the rest.
    assert re.search(r"efficient_capsnet +139760 +400 ", text)
    assert re.search(
        r"\nthe steps of 6 runs take about \S+ (s|min|h) on two cores; none has begun$", text
    )


NO_PLACE = (
    "has no place in cross-validation, which tests every image once and chooses nothing by that; "
    "leave it out."
)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"folds": 5},
            "histology cannot be parted into 5 folds that all test every class, because 4 of its "
            "33 groups show class '=malignant'; take fewer folds, or add groups.",
        ),
        ({"folds": 1}, "folds must be a whole number of folds from 2, but came as 1."),
        (
            {"groups": "benign/(p[0-9]+)"},
            "groups='benign/(p[0-9]+)' finds no group in the path of 27 of 99 pictures, "
            "=malignant/p030_0.png for one; a pattern must match in the path of every picture "
            "below the folder of the data.",
        ),
        ({"fold": (1, 3)}, f"fold {NO_PLACE}"),
        ({"stop_at": 0.9, "stop_on": "test"}, f"stop_on {NO_PLACE}"),
        (
            {"data": "part-whole", "groups": None},
            "cross-validation parts a folder of pictures, --data folder --root FOLDER, or in "
            'Python images of your own, own=images, for a recipe with data "own".',
        ),
    ],
)
def test_what_cannot_be_cross_validated_is_told(root, changed, said):
    assert text_of(lambda: plan(root, **changed)) == said


def test_names_that_suggest_groups_are_told_once(root, caplog):
    assert "nobody said which images belong together" in plan(root, groups=None).subject()
    (message,) = caplog.messages
    assert "tell pictures that belong together" in message
    caplog.clear()
    plan(root)
    assert caplog.messages == []


def test_a_plain_network_has_no_twin_and_others_are_named(root):
    alone = plan(root, against=("matched",), model="efficient_convnet", options={})
    assert [label for label, *_ in alone.networks] == ["efficient_convnet"]
    other = recipe(options={"decoder": False, "routing": "uniform"})
    named = plan(root, against=("efficient_convnet", other))
    assert [one.model for _, one, _ in named.networks] == [
        "efficient_capsnet",
        "efficient_convnet",
        "efficient_capsnet",
    ]
    assert len({label for label, *_ in named.networks}) == 3


def answered(seed: int, said: list[int]) -> Evaluation:
    """What a network might say of twelve images of three classes, of six groups."""
    scores = torch.rand(12, 3, generator=torch.Generator().manual_seed(seed)) / 4
    scores[torch.arange(12), said] += 1
    labels = torch.tensor([0, 0, 0, 0, 1, 2] * 2)
    named = torch.nn.functional.one_hot(scores.argmax(1), 3).bool()
    return Evaluation(
        data="drawn",
        class_names=("a", "b", "c"),
        scores=scores,
        scores_are="lengths",
        labels=labels,
        said=named,
        right=scores.argmax(1) == labels,
        judged_by="class",
        loss=0.0,
        loss_is="none",
        groups=tuple("uuvvwwxxyyzz"),
    )


def drawn(*said: list[int]) -> CrossValidation:
    networks = tuple((f"n{at}", recipe(), 10) for at in range(len(said)))
    images = Listed(("a", "b", "c"), (), [0, 0, 0, 0, 1, 2] * 2, tuple("uuvvwwxxyyzz"), [])
    fold_of = np.repeat([0, 1], 6)
    judged = tuple(answered(at, each) for at, each in enumerate(said))
    return CrossValidation(Plan("drawn", images, fold_of, (1, 2, 2), networks), judged)


def test_p_is_corrected_for_as_many_pairs_as_there_are():
    found = drawn([0] * 12, [0, 0, 0, 0, 1, 2] * 2, [0, 0, 0, 0, 0, 2] * 2)
    rows = found.comparisons()
    assert [row["networks"] for row in rows] == [("n0", "n1"), ("n0", "n2"), ("n1", "n2")]
    for test in ("balanced_accuracy", "auroc", "accuracy"):
        p = [row[test]["p"] for row in rows]
        assert [row[test]["p_corrected"] for row in rows] == holm(p)
    assert "each p is corrected for 3 pairs (Holm)" in found.text()
    assert "n0 says 'a' of every image of these folds: 1, 2." in found.words()


@pytest.mark.parametrize(
    ("first", "said"),
    [
        # 10, 11 and 12 points ahead: 11 ± 4.303 · 1 · (5/6)^½, and p of t = 12.05 with 2 degrees.
        ([0.60, 0.71, 0.82], "n0 is ahead: +11.0 points [+7.1, +14.9], p = 0.007."),
        ([0.40, 0.49, 0.58], "n1 is ahead: -11.0 points [-14.9, -7.1], p = 0.007."),
        ([0.60, 0.60, 0.72], "neither n0 nor n1 is shown to be ahead: +4.0 points [-1"),
    ],
)
def test_who_is_ahead_is_said_where_it_is_more_than_chance(first, said, monkeypatch):
    values = [first, [0.5, 0.6, 0.7]]
    monkeypatch.setattr(CrossValidation, "by_fold", lambda self, of: values[of is self.judged[1]])
    found = drawn([0] * 12, [0, 0, 0, 0, 1, 2] * 2).words()[-1]
    assert found.startswith(f"By balanced accuracy over the folds {said}")


def test_a_fold_without_a_class_has_no_test_over_folds():
    found = drawn([0, 0, 0, 0, 1, 2] * 2, [0] * 12)
    gone = replace(found.plan, fold_of=np.array([0] * 6 + [1, 1, 1, 1, 1, 0]))
    found = replace(found, plan=gone)
    assert found.by_fold(found.judged[0]) == [1.0, None]
    why = "no test, because fold 2 does not show every class"
    assert why in found.text()
    assert found.words()[-1].endswith(f"neither n0 nor n1 is shown to be ahead: {why}.")
    # JSON has no number that is none.
    json.dumps(found.numbers(), allow_nan=False)


def test_images_of_ones_own(tmp_path):
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(24, 1, 16, 16, generator=generator)
    mine = ImageSet("mine", images, torch.arange(24) % 2, ("a", "b"))
    found = crossval(
        recipe(data="own", groups=None), tmp_path / "cv", own=mine, folds=2, against=()
    )
    (judged,) = found.judged
    assert judged.labels.tolist() == mine.labels.tolist()
    assert (judged.files, judged.groups, found.comparisons()) == (None, None, [])
    assert "mine: 24 images, 2 folds; nobody said which images belong together" in found.text()
    run = Run(tmp_path / "cv" / "1-efficient_capsnet-fold-2-of-2")
    alone = evaluate(run.model(), folds(mine, 2)[1][1])
    torch.testing.assert_close(judged.scores[found.plan.tests[1]], alone.scores)
