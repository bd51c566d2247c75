"""What cannot be pruned, in errors.txt, word by word."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from error_text import cases_of, said_by
from ten import Ten
from torchcaps import create_model, prune
from torchcaps.layers import DenseCapsules
from torchcaps.models.own import OwnNetwork
from torchcaps.prune import Magnitude, MaskAtTheEnd, Masks, lowest
from torchcaps.types import Capsules, Output

ERRORS = Path(__file__).with_name("errors.txt")


class Mine(nn.Module):
    """With capsules, though nobody knows what reads them."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({"classes": DenseCapsules(n_in=8, d_in=4, n_out=3, d_out=6)})

    def forward(self, image):
        routed = self.layers["classes"](Capsules(image.flatten(1).unflatten(1, (8, 4))))
        return Output(routed.parents.activation, "lengths")


class Beside(nn.Sequential):
    def forward(self, features):
        return features + super().forward(features)


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


def sketch(name):
    with torch.device("meta"):
        return create_model(name)


def beside():
    model = network("rem_eff_mnist")
    model.backbone[3] = Beside(*model.backbone[3:4])
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


def frozen(part, model):
    model.get_submodule(part).requires_grad_(False)
    return model


network = partial(create_model, image=(1, 20, 20))
NAMES = vars(prune) | globals()
NAMES |= {
    "generator": torch.Generator(),
    "OWN": OwnNetwork(Mine()),
    "nan": torch.full((6, 1, 1, 1), torch.nan),
}


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
