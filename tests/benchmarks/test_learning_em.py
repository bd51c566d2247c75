"""What benchmarks/records/learning_em.json says of EM networks, and the loop that made it."""

import json
from dataclasses import asdict, replace

import learning_em
import pytest
import torch

from torchcaps.data import Batch
from torchcaps.models import MODELS

RUNS = json.loads(learning_em.RECORD.read_text())["runs"]


def described(run):
    return {key: run[key] for key in asdict(learning_em.COURSES[0])}


def test_every_run_is_one_that_is_described():
    known = [asdict(course) for course in learning_em.COURSES]
    assert [described(run) in known for run in RUNS] == [True] * len(RUNS)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run['network']} {run['seed']}")
def test_a_run_was_trained_by_its_protocol(run):
    course = learning_em.Course(**described(run))
    assert run["recipe"] == course.recipe().model_dump(include=learning_em.TAKEN)
    assert [row["epoch"] for row in run["after"]] == [*range(1, len(run["after"]) + 1)]


def test_deep_networks_and_the_convolutional_one_learn():
    last = [(run["network"], run["after"][-1]["test_accuracy"]) for run in RUNS]
    deep = [accuracy for name, accuracy in last if name == "peer_deep_em"]
    assert len(deep) == 9
    assert min(deep) > 0.95
    assert min(accuracy for name, accuracy in last if name == "matrix_capsnet_mnist") > 0.985


def test_edges_are_cut_off():
    pixels = torch.arange(36.0).view(1, 1, 6, 6)
    cut = learning_em.cropped(Batch(pixels, torch.zeros(1)), 2)
    assert cut.pixels.flatten().tolist() == [14, 15, 20, 21]


def test_a_course_gives_a_row_an_epoch():
    course = replace(learning_em.COURSES[0], images=130, epochs=2)
    assert course.network in MODELS
    data = Batch(torch.rand(130, 1, 28, 28), torch.arange(130) % 10)
    rows = list(learning_em.taught(course, data, data))
    assert [row["epoch"] for row in rows] == [1, 2]
    assert all(0 <= row["test_accuracy"] <= 1 and row["loss"] > 0 for row in rows)
