"""Routing by name; that it is its loop on every backend, ops/test_table.py says."""

import pytest
import torch

from torchcaps.layers import ROUTINGS
from torchcaps.ops import materialise, route
from torchcaps.ops.by_name import PLAIN
from torchcaps.types import Capsules, VoteMap


def vote_map():
    pose, weight = torch.randn(2, 18, 4).double(), torch.randn(18, 3, 4, 4).double()
    return VoteMap(Capsules(pose, pose.norm(dim=-1).tanh()), weight)


def test_every_routing_of_layers_is_known_and_no_other():
    assert set(PLAIN) == set(ROUTINGS)


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
    votes_of = vote_map()
    found, plain = (route(votes_of, "inverted", **each) for each in (options, {}))
    assert torch.allclose(found.parents.pose, plain.parents.pose)


def test_inverted_routing_with_activations_falls_back():
    options = {"beta_a": torch.zeros(3).double(), "beta_u": torch.zeros(3).double()}
    found = route(vote_map(), "inverted", **options)
    assert found.parents.activation.shape == (2, 3)
