"""What recipes, their files and `fit` say of what they cannot take, in errors.txt, word by word."""

import contextlib
import math
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import laid_runs
import torchcaps as tc
from error_text import cases_of, said_by, settled
from laid_runs import small_network, tiny_images
from single_steps import FIT
from torchcaps.data import SOURCES, Batch, MultiMnist, PartWholeSpec, part_whole
from torchcaps.train import make_recipe, read_recipe
from torchcaps.train.answers import is_correct
from torchcaps.train.compiled import compiled
from torchcaps.train.loss import loss_parts
from torchcaps.train.ranks import Ranks
from torchcaps.train.selecting import check_selectable
from torchcaps.train.update import Update

ERRORS = Path(__file__).with_name("errors.txt")
tiny = tiny_images(48, size=20)
TRAIN, TEST = tiny("train"), tiny("test")


class Plain(laid_runs.Plain):
    def __init__(self, image=(1, 20, 20), n_classes=10):
        super().__init__(image, n_classes)


class Bare(Plain):
    def forward(self, images):
        return self.layer(images.flatten(1))


class Weightless(nn.Module):
    def forward(self, images):
        return tc.Output(images.flatten(1)[:, :10], "logits")


def recipe(**fields):
    return make_recipe(**{"model": "capsnet", "data": "mnist"} | fields)


def file(name, content):
    Path(name).write_bytes(content)
    return read_recipe(name)


def fit(fields, **given):
    """Train by a small recipe with these fields, if nothing is wrong with it."""
    options = {"options": {"decoder": False}} if fields.get("model") is None else {}
    known = {"model": "mitterreiter_5x16", "data": "tiny", "epochs": 1, "batch_size": 16}
    return tc.train.fit(make_recipe(**options | known | fields), "run", **given)


def fit_own(model, **fields):
    known = {"model": "own", "data": "tiny", "epochs": 1}
    return tc.train.fit(make_recipe(**known | fields), "run", model=model)


def begun_with(network, **fields):
    tc.save(network, "net.safetensors")
    return fit(fields, begin_with="net.safetensors")


def of_class(k, images=TRAIN):
    return images.take((images.labels == k).nonzero()[:, 0])


def lengths(n_classes=3):
    return tc.Output(torch.rand(2, n_classes), "lengths")


def told_two(loss, scores_are):
    """The loss of an image that shows two objects, by a recipe."""
    batch = Batch(torch.rand(1, 1, 2, 2), torch.tensor([[0, 1]]))
    return loss_parts(recipe(loss=loss), tc.Output(torch.rand(1, 2), scores_are), batch)


def branching(numbers):
    return numbers if numbers.sum() > 0 else -numbers


def fit_by_two(**given):
    with patch.object(FIT, "join", lambda: Ranks(0, 2)):
        return fit({}, **given)


WIDER = part_whole("test", 5, spec=PartWholeSpec(size=24))
WITHOUT_ONE = TRAIN.take((TRAIN.labels != 2).nonzero()[:, 0])
PAIRS = MultiMnist(TRAIN, copies=1)
TORCH = TensorDataset(torch.rand(4, 1, 8, 8), torch.arange(4))
OURS = {name: getattr(tc.train, name) for name in tc.train.__all__}
NAMES = OURS | globals() | {"compiled": compiled, "is_correct": is_correct, "math": math}
NAMES |= {"Update": Update, "check_selectable": check_selectable, "small_network": small_network}


def said(call):
    sources = {"tiny": tiny, "wider": lambda split, root: WIDER}
    with (
        patch.dict(SOURCES, sources),
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
    ):
        text = said_by(call, NAMES)
        assert not Path("run").exists()
    return settled(text)


@pytest.mark.parametrize(("call", "sentence"), cases_of(ERRORS))
def test_what_is_told(call, sentence):
    assert said(call) == sentence
