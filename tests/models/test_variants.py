"""The table of [tsai2020] §4.3 in docs/models.md, against the networks and protocols themselves."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from torchcaps import create_model
from torchcaps.layers import DynamicRouting, EMRouting, InvertedRouting
from torchcaps.train import make_recipe
from torchcaps.train.loss import FITTING

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
NETWORKS = {
    "tsai_dynamic_simple_c10": ("tsai_cifar_dynamic", DynamicRouting),
    "tsai_em_simple_c10": ("tsai_cifar_em", EMRouting),
    "tsai_inverted_simple_c10": ("tsai_cifar", InvertedRouting),
}
LOSSES = {"binary": "binary cross-entropy", "cross_entropy": "cross-entropy"}


def printed():
    """The table as {network: {row: entry}}."""
    lines = re.findall(r"^\| ([\w-]+) \| (.*) \| (.*) \| (.*) \|$", PAGE, flags=re.M)
    rows = {name: entries for name, *entries in lines if name != "model"}
    names = [name.strip("`") for name in rows.pop("network")]
    return {name: {row: rows[row][k] for row in rows} for k, name in enumerate(names)}


def one(values):
    (value,) = set(values)
    return value


def loss_of(model, recipe):
    said = recipe.loss if recipe.loss != "auto" else FITTING[model.scores_are]
    return LOSSES.get(said, said)


def declared(name):
    """Field by field from what the network is made of."""
    protocol, kind = NETWORKS[name]
    with torch.device("meta"):
        model = create_model(name)
        out = model(torch.empty(2, *model.image), keep="last")
    layers = list(model.layers.values())
    routings = [layer.routing for layer in layers]
    assert {type(routing) for routing in routings} == {kind}
    activations = "none"
    if all(step.routed.parents.activation is not None for step in out.trace):
        activations = "by EM" if kind is EMRouting else "length of the pose"
    squashes = {getattr(each, "squash", "none") for each in (model.primary, *routings)}
    normed = [
        isinstance(getattr(x, "norm", None), nn.LayerNorm) for x in (model.primary, *routings)
    ]
    recipe = make_recipe(model=name, data="cifar10", protocol=protocol)
    model.scores_are = out.scores_are
    loss = loss_of(model, recipe)
    if kind is InvertedRouting:
        with torch.device("meta"):
            several = create_model("tsai_dmm_matrix")
            several.scores_are = several(torch.empty(2, *several.image)).scores_are
        other = loss_of(several, make_recipe(model="tsai_dmm_matrix", protocol="tsai_dmm"))
        loss = f"{loss}; {other} where several classes are present"
    return {
        "routing": model.schedule,
        "poses": one(layer.pose for layer in layers),
        "activations": activations,
        "non-linearity": "none" if squashes == {"none"} else "squash",
        "normalisation": "LayerNorm" if one(normed) else "none",
        "loss": loss,
    }


@pytest.mark.parametrize("name", NETWORKS)
def test_the_comparison_of_three_routings(name):
    assert printed()[name] == declared(name)
    assert len(printed()) == 3
