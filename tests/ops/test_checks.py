"""What an op says of arguments that are no tensors, or tensors of another kind."""

import math

import pytest
import torch
from torch.nn import functional

from error_text import text_of
from tables import beside, worked_out
from torchcaps import Capsules, ops
from torchcaps._checks import check_choice
from torchcaps.layers import EMRouting, InvertedRouting
from torchcaps.ops import fused, native
from torchcaps.ops.checks import check_iterations, has_values, is_finite, may_look, one_hot
from torchcaps.types import VoteMap

VOTES = torch.rand(2, 3, 4, 5)
ACTIVATION = torch.rand(2, 3)
BETA = torch.zeros(4)
WEIGHT = torch.rand(3, 4, 5, 2)
SCORES, TARGET = torch.rand(2, 4), torch.tensor([0, 3])

TABLE = beside(__file__, "checks.toml")
CALLS, WITH = TABLE["calls"], worked_out(TABLE["with"], globals())
SPOILT = {
    "list": (torch.Tensor.tolist, "must be a torch.Tensor, but came as list; make one with "),
    "array": (torch.Tensor.numpy, "must be a torch.Tensor, but came as ndarray; make one with "),
    "sparse": (torch.Tensor.to_sparse, "must be a dense tensor, but came as torch.sparse_coo; "),
}


def call_of(name):
    """An op, the tensors that may be spoilt, and the rest of what it takes."""
    said = CALLS[name]
    tensors, rest = (worked_out(said.get(part, {}), globals()) for part in ("tensors", "rest"))
    return getattr(ops, said["op"]), tensors, rest


@pytest.mark.parametrize("kind", SPOILT)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_dense_tensor_is_named(name, kind):
    op, tensors, rest = call_of(name)
    spoil, sentence = SPOILT[kind]
    op(**tensors, **rest)
    for each in tensors:
        arguments = tensors | {each: spoil(tensors[each])}
        assert f"{each} {sentence}" in text_of(lambda: op(**arguments, **rest))  # noqa: B023


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
@pytest.mark.parametrize("name", CALLS)
def test_nested_tensors_are_named(name):
    op, tensors, rest = call_of(name)
    for each, x in tensors.items():
        for layout in (torch.strided, torch.jagged):
            nested = torch.nested.nested_tensor([x, x], layout=layout)
            text = text_of(lambda: op(**tensors | {each: nested}, **rest))  # noqa: B023
            assert text.startswith(f"{each} must be one dense tensor, but came as a nested one, of")


@pytest.mark.parametrize("name", WITH)
def test_what_lies_elsewhere_than_the_votes_is_named(name):
    op = getattr(ops, f"{name}_routing")
    op(VOTES, **WITH[name])
    text = text_of(lambda: op(VOTES.to("meta"), **WITH[name]))
    assert " must be where the votes are, on meta, but is on cpu; move it with " in text
    for each, x in WITH[name].items():
        away = (x[0], x[1].to("meta")) if each == "norm" else x.to("meta")
        text = text_of(lambda: op(VOTES, **WITH[name] | {each: away}))  # noqa: B023
        shown = "bias" if each == "norm" else each
        assert text.startswith(f"{shown} must be where the votes are, on cpu, but is on meta;")


@pytest.mark.parametrize("value", ["x", None, [], {}, (), 10**400, torch.nan, -1.0, torch.ones(2)])
def test_numbers_are_single_finite_ones(value):
    for module, name in ((EMRouting, "lambda_"), (InvertedRouting, "lambda_")):
        text = text_of(lambda: module(**{name: value}))  # noqa: B023
        assert text.startswith("lambda_ must be a finite number from 0 up, but came as ")
        assert len(text) < 200
    assert "dropout must be a number from 0 and below 1, but came as" in text_of(
        lambda: InvertedRouting(dropout=value)
    )
    assert "p is the probability of a parent at half the mean distance" in text_of(
        lambda: ops.distance_routing(VOTES, ACTIVATION, p=value)
    )


@pytest.mark.parametrize("kind", SPOILT)
@pytest.mark.parametrize("form", [ops.materialise, fused.dynamic_routing, native.dynamic_routing])
def test_a_vote_map_holds_dense_tensors(form, kind):
    spoil, sentence = SPOILT[kind]
    pose = torch.rand(2, 3, 2)
    assert f"pose {sentence}" in text_of(lambda: form(VoteMap(Capsules(spoil(pose)), WEIGHT)))
    assert f"weight {sentence}" in text_of(lambda: form(VoteMap(Capsules(pose), spoil(WEIGHT))))


@pytest.mark.parametrize("iterations", [True, False, 2.0, "3", None, 0, -1])
def test_iterations_are_a_whole_number(iterations):
    text = text_of(lambda: check_iterations(iterations))
    assert f"must be a whole number from 1, but came as {iterations!r};" in text


def test_what_came_is_not_quoted_at_length():
    assert len(text_of(lambda: check_iterations([10**4000]))) < 300
    assert len(text_of(lambda: check_choice("scale", 10**5000, ("sample", "batch")))) < 300


def test_one_hot_is_that_of_torch():
    index = torch.tensor([[0, 2], [3, 3]])
    assert torch.equal(one_hot(index, 4, torch.float64), functional.one_hot(index, 4).double())


def test_values_are_looked_at_where_there_are_some():
    assert may_look(torch.rand(2))
    assert has_values(torch.rand(2))
    looks = []
    torch.func.vmap(lambda x: looks.append(x) or x)(torch.rand(2))
    for x in (torch.rand(2, device="meta"), *looks):
        assert not may_look(x)
        assert not has_values(x)


@pytest.mark.parametrize(
    ("values", "finite"), [([1e38] * 9, True), ([0, math.nan], False), ([math.inf], False)]
)
def test_finite_values_may_have_an_infinite_sum(values, finite):
    assert is_finite(torch.tensor(values)) == finite
