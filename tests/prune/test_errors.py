"""What cannot be pruned, in errors.txt, word by word."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from error_text import cases_of, said_by
from ten import Ten
from torchcaps import prune
from torchcaps.prune import Magnitude, MaskAtTheEnd, Masks, lowest

ERRORS = Path(__file__).with_name("errors.txt")


def loaded(**damaged):
    """Masks of Ten, of which some are other ones."""
    masks = Masks(Ten())
    state = {**masks.state_dict(), **{f"{name}.weight": new for name, new in damaged.items()}}
    try:
        masks.load_state_dict(state)
    finally:
        assert masks.count == 0


def pruned_to_nothing():
    masks = Masks(Ten())
    scores = {name: weight.abs() for name, weight in masks.weights.items()}
    scores["one.weight"] = torch.zeros(4, 1, 1, 1)
    try:
        masks.add(lowest(scores, 4))
    finally:
        assert masks.count == 0


def made_of_others():
    model = Ten()
    weight_norm(model.one)
    weight_norm(model.two)
    return model


def changed(change):
    """A pruner whose network got other tensors: it set weights to zero nobody looked at."""
    model = Ten()
    pruner = Magnitude(model, targets=(0.2, 0.5))
    pruner.after_epoch(0, dict)
    change(model)
    return pruner


def loaded_anew(model):
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


def with_another_layer(model):
    model.one = nn.Conv2d(1, 4, 1)


def without_a_layer(model):
    model.one = None


NAMES = vars(prune) | globals()
NAMES |= {"generator": torch.Generator(), "nan": torch.full((6, 1, 1, 1), torch.nan)}


def said(call):
    return said_by(call, NAMES)


@pytest.mark.parametrize(("call", "sentence"), cases_of(ERRORS))
def test_what_is_told(call, sentence):
    assert said(call) == sentence


def test_as_much_as_a_weight_can_be_pruned():
    for to in (0.051, 0.95):
        for make in (prune.Snip, MaskAtTheEnd, partial(prune.RandomMasks, generator=None)):
            make(Ten(), to=to)
        prune.Lobster(Ten(), most=to)
        Magnitude(Ten(), targets=(to,))
