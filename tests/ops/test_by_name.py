"""Routing by name: the same parents as by the function of that name, on every backend."""

import inspect

import pytest
import torch

import torchcaps as tc
from torchcaps.layers import ROUTINGS
from torchcaps.ops import fused, materialise, route
from torchcaps.ops.by_name import PLAIN
from torchcaps.types import Capsules, VoteMap, Window

# A routing without a line here is called with its defaults.
OPTIONS = {
    "distance": {"iterations": 2},
    "dynamic": {"iterations": 2, "squash": "exp"},
    "em": {"beta_a": torch.zeros(3), "beta_u": torch.ones(3), "iterations": 2},
    "inverted": {"iterations": 2},
    "uniform": {"normalise": "mean"},
}
WINDOW = Window((3, 3, 2), (2, 2), (1, 1))


def vote_map(window=None):
    torch.manual_seed(0)
    n_in = 8 if window else 18
    pose = torch.randn(2, 18, 4, dtype=torch.float64)
    weight = torch.randn(n_in, 3, 4, 4, dtype=torch.float64)
    return VoteMap(Capsules(pose, pose.norm(dim=-1).tanh()), weight, window=window)


def test_every_routing_of_layers_is_known_and_no_other():
    assert set(PLAIN) == set(ROUTINGS)


# Self-routing sees the poses too, see test_self_routing.py.
@pytest.mark.parametrize("window", [None, WINDOW], ids=["dense", "windows"])
@pytest.mark.parametrize("name", sorted(set(ROUTINGS) - {"self_routing"}))
def test_it_is_the_function_of_that_name(name, window):
    votes_of, options = vote_map(window), OPTIONS.get(name, {})
    votes, activation = materialise(votes_of), votes_of.children.activation
    if window is not None:
        activation = activation[:, window.child_id()]
    function = getattr(tc.ops, f"{name}_routing")
    taken = inspect.signature(function).parameters.get("activation")
    given = {"activation": activation} if taken and taken.default is taken.empty else {}
    expected = function(votes, **given, keep="last", **options)
    unstored = ("fused", "native") if name in fused.ROUTINGS else ()
    for backend in ("auto", "plain", *unstored):
        found = route(votes_of, name, backend=backend, keep="last", **options)
        assert torch.allclose(found.parents.pose, expected.parents.pose)
        assert torch.allclose(found.steps[-1].coupling, expected.steps[-1].coupling)


def test_plain_stores_the_votes_and_fused_does_not(monkeypatch):
    stored = []
    monkeypatch.setattr(
        "torchcaps.ops.by_name.materialise", lambda m: stored.append(m) or materialise(m)
    )
    for backend in ("plain", "fused", "auto"):
        route(vote_map(), backend=backend)
    # "auto" stores the few votes that there are.
    assert len(stored) == 2


@pytest.mark.parametrize("options", [{"lambda_": 0.1}, {"beta_a": None, "beta_u": None}], ids=str)
def test_inverted_routing_without_activations_takes_their_options(options, monkeypatch):
    monkeypatch.setattr("torchcaps.ops.backend.FUSED_FROM", 0)
    monkeypatch.setattr("torchcaps.ops.backend.LANES_FROM", 0)
    found, plain = (route(vote_map(), "inverted", **each) for each in (options, {}))
    assert torch.allclose(found.parents.pose, plain.parents.pose)


def test_inverted_routing_with_activations_falls_back():
    options = {"beta_a": torch.zeros(3).double(), "beta_u": torch.zeros(3).double()}
    found = route(vote_map(), "inverted", **options)
    assert found.parents.activation.shape == (2, 3)
