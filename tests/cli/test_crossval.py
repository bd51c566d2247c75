"""`torchcaps crossval`, as somebody types it."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command

from cli.command_line import assert_one_sentence
from torchcaps.cli.application import app
from torchcaps.cli.arguments import OF_RECIPE


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two pictures of each patient, three in four of one class."""
    root, rng = tmp_path_factory.mktemp("data") / "skin", np.random.default_rng(0)
    for patient in range(16):
        folder = root / ("mole", "melanoma")[patient % 4 == 0]
        folder.mkdir(parents=True, exist_ok=True)
        for picture in range(2):
            pixels = rng.integers(0, 255, (16, 16), np.uint8)
            Image.fromarray(pixels).save(folder / f"p{patient:02}_{picture}.png")
    return root


LINE = ["crossval", "--groups", "(p[0-9]+)_", "--folds", 2, "--epochs", 1, "--batch-size", 16]


def test_who_takes_a_recipe_takes_all_of_it():
    for name in ("train", "crossval", "doctor"):
        parameters = get_command(app).commands[name].params
        assert set(OF_RECIPE) < {each.name for each in parameters}, name


def test_a_dry_run_leaves_nothing(root, tmp_path, call):
    line = [*LINE, "--root", root, "--out", tmp_path / "cv", "--dry-run", "--against", "none"]
    done = call(*line)
    assert "the steps of 2 runs take about" in done.out
    assert "efficient_convnet" not in done.out
    assert not (tmp_path / "cv").exists()
    assert json.loads(call(*line, "--json").out)["folds"][0]["groups"] == 8


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--folds", 5], "because 4 of its 16 groups show class 'melanoma'; take fewer"),
        (["--against", "resnet"], "model: 'resnet' is unknown; did you mean 'resnet18'?"),
        (["--data", "mnist", "--groups", "none"], "cross-validation parts a folder of pictures"),
        (["--set", "fold=[1,2]"], "fold has no place in cross-validation"),
        (["--groups", "x"], "groups='x' finds no group in the path of 32 of 32 pictures"),
    ],
)
def test_what_cannot_be_is_one_sentence(root, tmp_path, call, more, said):
    done = call(*LINE, "--root", root, "--out", tmp_path / "cv", *more)
    assert_one_sentence(done, said)
    assert not (tmp_path / "cv").exists()
