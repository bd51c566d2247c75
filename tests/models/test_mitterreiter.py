"""The five-layer network: its size on paper, its layers, its uniform twin."""

import re
from itertools import pairwise

import pytest
import torch

from torchcaps import create_model
from torchcaps.errors import TorchcapsError

NAME = "mitterreiter_5x16"
LAYERS = ["hidden_2", "hidden_3", "hidden_4", "classes"]
# (1, 40, 40), 10 classes. Backbone, 40 → 36 → 34 → 32 → 15 pixels:
BACKBONE = (25 * 32 + 32) + (32 * 9 * 64 + 64) + (64 * 9 * 64 + 64) + (64 * 9 * 128 + 128)
NORMS = 2 * (32 + 64 + 64 + 128)
DEPTHWISE = 128 * 15 * 15 + 128
MATRICES = 3 * 16 * 16 * 8 * 8 + 16 * 10 * 8 * 8
PRIORS = 3 * 16 * 16 + 16 * 10
DECODER = (80 * 512 + 512) + (512 * 1024 + 1024) + (1024 * 1600 + 1600)
BIASES = 3 * 16 * 8 + 10 * 8


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, BACKBONE + NORMS + DEPTHWISE + MATRICES + PRIORS + DECODER),
        ({}, 2_426_720),
        ({"routing": "uniform"}, 2_426_720 - PRIORS),
        ({"bias": True}, 2_426_720 + BIASES),
        ({"decoder": False}, 2_426_720 - DECODER),
    ],
)
def test_parameter_counts(chosen, expected):
    with torch.device("meta"):
        model = create_model(NAME, **chosen)
    assert sum(p.numel() for p in model.parameters()) == expected


def small(**chosen):
    torch.manual_seed(2)
    return create_model(NAME, image=(1, 12, 11), n_classes=3, **chosen).eval()


def test_five_layers_of_sixteen():
    trace = small()(torch.rand(2, 1, 12, 11), keep="last").trace
    assert [layer.name for layer in trace] == LAYERS
    assert [layer.children.pose.shape for layer in trace] == [(2, 16, 8)] * 4
    assert trace[-1].routed.parents.pose.shape == (2, 3, 8)
    # Each layer reads what the one below it wrote.
    for below, above in pairwise(trace):
        assert above.children is below.routed.parents
    assert [layer.child_grid for layer in trace] == [(1, 1, 16), None, None, None]


def test_priors_are_learned_and_start_at_zero():
    state = small().state_dict()
    priors = {name: tensor for name, tensor in state.items() if name.endswith("prior")}
    assert set(priors) == {f"layers.{name}.routing.prior" for name in LAYERS}
    assert all(not tensor.any() for tensor in priors.values())


def test_squash_is_exp_everywhere():
    model = small()
    assert model.primary.squash == "exp"
    assert {layer.routing.squash for layer in model.layers.values()} == {"exp"}
    twin = small(routing="uniform")
    assert {layer.routing.squash for layer in twin.layers.values()} == {"exp"}


def test_weights_are_standard_normal():
    half, whole = small(weight_std=0.5).state_dict(), small().state_dict()
    for name in LAYERS:
        weight = f"layers.{name}.weight"
        assert torch.equal(whole[weight], 2 * half[weight])
        assert float(whole[weight].std()) == pytest.approx(1, abs=0.05)


def test_too_small_an_image():
    expected = (
        "an image of (channels, height, width) = (1, 10, 40) does not pass through the convolutions"
    )
    with pytest.raises(TorchcapsError, match=re.escape(expected)):
        create_model(NAME, image=(1, 10, 40))
