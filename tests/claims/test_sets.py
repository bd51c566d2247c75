"""Data sets that claims name."""

import os
from pathlib import Path

import pytest

from error_text import text_of
from tables import rows_beside
from torchcaps.data import SOURCES, load
from torchcaps.data.registry import SETS, data_set
from torchcaps_claims import claims
from torchcaps_claims.sets import sets_in

CASES = rows_beside(__file__, "cases.toml")["sets"]

HERE = ("cifar10", "cifar100", "expanded-mnist", "fashion-mnist", "mnist", "multi-mnist")


@pytest.mark.parametrize(("text", "names"), CASES["sets_are_found_in_words"])
def test_sets_are_found_in_words(text, names):
    assert sets_in(text) == tuple(names)


def test_every_number_names_sets_that_are_known():
    named = [c for c in claims() if c.kind == "accuracy" and c.dataset and c.origin == "own"]
    assert [claim.id for claim in named if not sets_in(claim.dataset)] == []


def test_an_unknown_set():
    said = text_of(lambda: data_set("mnis"))
    assert said.startswith("the sizes of data 'mnis' are not known; did you mean 'mnist'?")


def expect_as_said(name, root=None):
    images, size = load(name, split="train", root=root), SETS[name]
    assert (images.image_shape, len(images.class_names)) == (size.image, size.n_classes)
    assert len(images) == size.n_train


@pytest.mark.parametrize("name", ["part-whole", "sign", "toy-2d"])
def test_made_sets_are_as_large_as_said(name):
    expect_as_said(name)


@pytest.mark.data
@pytest.mark.parametrize("name", HERE)
def test_read_sets_are_as_large_as_said(name):
    root = os.environ.get("TORCHCAPS_DATA")
    if root is None:
        pytest.skip("TORCHCAPS_DATA is not set; it names the folder of data sets that are files")
    expect_as_said(name, Path(root))


def test_data_knows_every_set():
    assert SETS.keys() <= SOURCES.keys()
