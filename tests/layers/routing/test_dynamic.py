"""Dynamic routing as a module: what it hands to its op."""

import pytest
import torch

from layers.routing.bound import SIZE, bound
from torchcaps.layers import DynamicRouting
from torchcaps.ops import dynamic_routing


def test_a_learned_factor_is_one_number_that_starts_at_a_tenth():
    votes = torch.randn(3, *SIZE)
    routing = bound(DynamicRouting(agreement="learned"))
    assert {name: p.shape for name, p in routing.named_parameters()} == {"agreement": ()}
    pose = routing(votes, None).parents.pose
    assert torch.equal(pose, dynamic_routing(votes, agreement=0.1).parents.pose)
    pose.square().sum().backward()
    assert routing.agreement.grad.abs() > 0
    assert list(DynamicRouting(agreement=0.5).parameters()) == []


@pytest.mark.parametrize(
    ("given", "learning"),
    [
        ({}, {"prior", "agreement", "bias"}),
        ({"detach": "votes"}, {"prior", "agreement", "bias"}),
        ({"detach": "states"}, {"prior", "agreement", "bias"}),
        # Couplings are constants.
        ({"detach": "coupling"}, {"bias"}),
        # No logit grows.
        ({"iterations": 1}, {"prior", "bias"}),
    ],
)
def test_what_no_gradient_reaches_is_not_trained(given, learning):
    """Counted as trained it would stand in every list of weights that learn nothing."""
    options = {"prior": "learned", "agreement": "learned", "bias": True}
    routing = bound(DynamicRouting(**options, **given))
    votes = torch.randn(3, *SIZE, requires_grad=True)
    routing(votes, None).parents.pose.square().sum().backward()
    named = dict(routing.named_parameters())
    assert set(named) == {"prior", "agreement", "bias"}
    assert {name for name, each in named.items() if each.requires_grad} == learning
    assert {name for name, each in named.items() if each.grad is not None} == learning
