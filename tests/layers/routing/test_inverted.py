"""Inverted routing as a module: its parameters, and what it hands to its op."""

import math

import pytest
import torch

from layers.routing.bound import N_IN, VOTES, D, assert_equal, bound, random_parameters
from torchcaps.layers import InvertedRouting
from torchcaps.ops import inverted_routing


@pytest.mark.parametrize("start", ["none", "learned"])
@pytest.mark.parametrize("layer_norm", [True, False])
@pytest.mark.parametrize("activations", [True, False])
def test_inverted_hands_every_option_to_its_op(start, layer_norm, activations):
    votes, activation = torch.randn(VOTES), torch.rand(3, N_IN)
    given = {"start": start, "layer_norm": layer_norm, "activations": activations}
    routing = bound(InvertedRouting(**given, iterations=3, scaled=True, lambda_=0.3))
    random_parameters(routing)
    norm = (routing.norm.weight, routing.norm.bias) if layer_norm else None
    costs = {"activation": activation, "beta_a": routing.beta_a, "beta_u": routing.beta_u}
    op = inverted_routing(
        votes,
        iterations=3,
        norm=norm,
        scale=1 / math.sqrt(D),
        start=routing.start,
        lambda_=0.3,
        keep="steps",
        **(costs if activations else {}),
    )
    assert_equal(routing(votes, activation, keep="steps"), op)
    assert routing.gives_activations == activations
    # And step by step.
    parents = None
    for step in op.steps:
        mine = routing.step(votes, activation, parents)
        assert torch.equal(mine.coupling, step.coupling)
        parents = mine.parents
    assert torch.equal(parents.pose, op.parents.pose)


def test_parameters_of_inverted_routing_at_the_start():
    full = bound(InvertedRouting(activations=True, start="learned"))
    found = {name: tuple(p.shape) for name, p in full.named_parameters()}
    assert found == {
        "norm.weight": (2,),
        "norm.bias": (2,),
        "start": (4, 2),
        "beta_a": (4,),
        "beta_u": (4,),
    }
    assert not full.beta_a.any()
    assert not full.beta_u.any()
    assert full.norm.eps == 1e-5
    assert dict(bound(InvertedRouting(layer_norm=False)).named_parameters()) == {}
    wide = InvertedRouting(start="learned")
    wide.bind(n_in=2, n_out=100, d_out=64)
    assert float(wide.start.detach().std()) == pytest.approx(1 / 8, rel=0.05)
    assert InvertedRouting().gives_activations is False
    assert full.normalised_over == "parents"
