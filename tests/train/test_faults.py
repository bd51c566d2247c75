"""Every open, write, fsync and rename of a run fails in turn: the same line ends with the same bits
or in one sentence, and then goes on to the same bits."""

import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from conftest import FUZZ_SEED
from faulty_disk import (
    FaultyDisk,
    after_a_power_cut,
    drawn,
    faults_of,
    lay,
    mounted,
    sentence_of,
)
from laid_runs import assert_readable, tiny_images
from torchcaps.train import Recipe, Run, fit, make_recipe
from torchcaps.train.folder import environment

DATA = {"tiny": tiny_images(24, size=20)}


@pytest.fixture(autouse=True, scope="module")
def _without_git():
    with pytest.MonkeyPatch.context() as patch:
        # git is slow, and has nothing to do with the disk of a run.
        patch.setattr(environment, "_commit_of", lambda source: "0a1b2c3d4e5f")
        yield


def recipe(epochs):
    fields = {"model": "peer_sign_dynamic", "data": "tiny", "batch_size": 16, "keep": "best"}
    return make_recipe(**fields, epochs=epochs)


class Whole(NamedTuple):
    """A run that nothing disturbed: its recipe, what was there before, and its calls."""

    recipe: Recipe
    before: Path
    run: Run
    disk: FaultyDisk


@pytest.fixture(scope="module", params=["begun", "gone on with"])
def whole(request, tmp_path_factory):
    """Of one epoch, or the second of two."""
    folder = tmp_path_factory.mktemp("whole")
    before, begins = folder / "before", request.param == "begun"
    before.mkdir()
    if not begins:
        fit(recipe(1), before)
    run = Run(shutil.copytree(before, folder / "run"))
    asked = recipe(1 if begins else 2)
    with mounted(FaultyDisk(folder)) as disk:
        fit(asked, run.folder)
    return Whole(asked, before, run, disk)


def what_it_says(run):
    rows = [{**row, "seconds": 0} for row in run.metrics()]
    return run.model_file.read_bytes(), rows, {**run.result(), "seconds_of_last_stretch": 0}


def survives(whole, fault, folder):
    run = Run(shutil.copytree(whole.before, folder / "run"))
    with mounted(FaultyDisk(folder, fault)):
        sentence = sentence_of(lambda: fit(whole.recipe, run.folder))
    if sentence is not None:
        assert str(folder) in sentence, f"no file is named: {sentence}"
        assert_readable(run.folder)
    with mounted(FaultyDisk(folder)):
        fit(whole.recipe, run.folder)
    assert what_it_says(run) == what_it_says(whole.run)
    names = [sorted(file.name for file in each.folder.iterdir()) for each in (run, whole.run)]
    assert names[0] == names[1]
    shutil.rmtree(folder / "run")
    return sentence


def all_survived(whole, faults, folder):
    ended, wrong = Counter(), []
    for fault in faults:
        place = folder / "-".join(map(str, fault))
        place.mkdir()
        try:
            ended["told" if survives(whole, fault, place) else "the same bits at once"] += 1
        except Exception as error:
            # All that are wrong are told, not the first alone.
            wrong.append((fault, whole.disk.calls[fault.at][1], repr(error)[:300]))
    assert wrong == [], "\n".join(map(str, wrong))
    return ended


def test_a_call_that_fails_costs_no_bit(whole, tmp_path):
    faults = drawn(faults_of(whole.disk.calls), 6, int(os.environ[FUZZ_SEED]))
    assert all_survived(whole, faults, tmp_path)["told"]


@pytest.mark.slow
def test_every_call_that_fails_costs_no_bit(whole, tmp_path, capsys):
    faults = faults_of(whole.disk.calls)
    found = all_survived(whole, faults, tmp_path)
    with capsys.disabled():
        print(json.dumps({"calls": len(whole.disk.calls), "faults": len(faults), **found}))


def test_a_power_cut_costs_no_bit(whole, tmp_path):
    """Whatever an honest disk may have of the last two files."""
    cuts = list(after_a_power_cut(whole.disk.journal, is_honest=True))
    for k in random.Random(int(os.environ[FUZZ_SEED])).sample(range(len(cuts)), 4):
        assert goes_on(whole, cuts[k], tmp_path / str(k)) is None, k


@pytest.mark.slow
@pytest.mark.parametrize("is_honest", [True, False])
def test_every_power_cut_costs_no_bit(whole, tmp_path, capsys, is_honest):
    """A disk that says it wrote what it did not may tear files: their digests find it."""
    found = Counter()
    for k, moves in enumerate(after_a_power_cut(whole.disk.journal, is_honest=is_honest)):
        sentence = goes_on(whole, moves, tmp_path / str(k))
        assert sentence is None or not is_honest, (k, sentence)
        found["the same bits" if sentence is None else "told"] += 1
    with capsys.disabled():
        print(json.dumps({"honest": is_honest, **found}))


def goes_on(whole, moves, folder):
    """What is said of these files, or nothing where they end with the same bits."""
    run = Run(shutil.copytree(whole.before, folder))
    lay(moves, run.folder)
    with mounted(FaultyDisk(folder)):
        # A result that is torn is found when it is read.
        sentence = sentence_of(lambda: what_it_says(fit(whole.recipe, run.folder)))
    if sentence is None:
        assert what_it_says(run) == what_it_says(whole.run)
    return sentence
