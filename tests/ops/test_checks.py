"""What an op says of arguments that are no tensors, or tensors of another kind."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from error_text import text_of
from torchcaps import Capsules, ops
from torchcaps.ops import fused, native
from torchcaps.ops.checks import check_iterations, is_finite, may_look, one_hot
from torchcaps.types import VoteMap

VOTES = torch.rand(2, 3, 4, 5)
ACTIVATION = torch.rand(2, 3)
BETA = torch.zeros(4)
WEIGHT = torch.rand(3, 4, 5, 2)
SCORES, TARGET = torch.rand(2, 4), torch.tensor([0, 3])

# Each with the arguments that may be spoilt.
CALLS = {
    "dynamic": (ops.dynamic_routing, {"votes": VOTES}, {}),
    "bias": (ops.dynamic_routing, {"bias": torch.rand(4, 5)}, {"votes": VOTES}),
    "uniform": (ops.uniform_routing, {"votes": VOTES}, {}),
    "inverted": (ops.inverted_routing, {"votes": VOTES}, {}),
    "self_attention": (ops.self_attention_routing, {"votes": VOTES}, {}),
    "distance": (ops.distance_routing, {"votes": VOTES, "activation": ACTIVATION}, {}),
    "em": (
        ops.em_routing,
        {"votes": VOTES, "activation": ACTIVATION, "beta_a": BETA, "beta_u": BETA},
        {},
    ),
    "squash": (ops.squash, {"pose": VOTES}, {}),
    "margin": (ops.margin_loss, {"lengths": SCORES, "target": TARGET}, {}),
    "spread": (ops.spread_loss, {"activations": SCORES, "target": TARGET}, {"margin": 0.2}),
    "entropy": (ops.cross_entropy_loss, {"scores": SCORES, "target": TARGET}, {}),
    "binary": (
        ops.binary_cross_entropy_loss,
        {"scores": SCORES, "target": TARGET},
        {"scores_are": "lengths"},
    ),
    "reconstruction": (
        ops.reconstruction_loss,
        {"reconstruction": VOTES, "image": VOTES},
        {},
    ),
}
SPOILT = {
    "list": (torch.Tensor.tolist, "must be a torch.Tensor, but came as list; make one with "),
    "array": (torch.Tensor.numpy, "must be a torch.Tensor, but came as ndarray; make one with "),
    "sparse": (torch.Tensor.to_sparse, "must be a dense tensor, but came as torch.sparse_coo; "),
}


@pytest.mark.parametrize("kind", SPOILT)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_dense_tensor_is_named(name, kind):
    op, tensors, rest = CALLS[name]
    spoil, sentence = SPOILT[kind]
    op(**tensors, **rest)
    for each in tensors:
        arguments = tensors | {each: spoil(tensors[each])}
        assert f"{each} {sentence}" in text_of(lambda: op(**arguments, **rest))  # noqa: B023


@pytest.mark.parametrize("kind", SPOILT)
@pytest.mark.parametrize("form", [ops.materialise, fused.dynamic_routing, native.dynamic_routing])
def test_a_vote_map_holds_dense_tensors(form, kind):
    spoil, sentence = SPOILT[kind]
    pose = torch.rand(2, 3, 2)
    assert f"pose {sentence}" in text_of(lambda: form(VoteMap(Capsules(spoil(pose)), WEIGHT)))
    assert f"weight {sentence}" in text_of(lambda: form(VoteMap(Capsules(pose), spoil(WEIGHT))))


def test_what_is_said_of_an_array():
    assert text_of(lambda: ops.squash(np.ones(3))) == (
        "pose must be a torch.Tensor, but came as ndarray; make one with torch.as_tensor(pose)."
    )


@pytest.mark.parametrize("iterations", [True, False, 2.0, "3", None, 0, -1])
def test_iterations_are_a_whole_number(iterations):
    text = text_of(lambda: check_iterations(iterations))
    assert f"must be a whole number from 1, but came as {iterations};" in text


def test_one_hot_is_that_of_torch():
    index = torch.tensor([[0, 2], [3, 3]])
    assert torch.equal(one_hot(index, 4, torch.float64), functional.one_hot(index, 4).double())


def test_values_are_looked_at_where_there_are_some():
    assert may_look(torch.rand(2))
    assert not may_look(torch.rand(2, device="meta"))
    looks = []
    torch.func.vmap(lambda x: looks.append(may_look(x)) or x)(torch.rand(2))
    assert looks == [False]


@pytest.mark.parametrize(
    ("values", "finite"), [([1e38] * 9, True), ([0, math.nan], False), ([math.inf], False)]
)
def test_finite_values_may_have_an_infinite_sum(values, finite):
    assert is_finite(torch.tensor(values)) == finite
