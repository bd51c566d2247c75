"""Uniform routing as a module: what it hands to its op."""

import pytest
import torch

from layers.routing.bound import SIZE, bound
from torchcaps.layers import UniformRouting
from torchcaps.ops import uniform_routing


@pytest.mark.parametrize(
    ("normalise", "axis", "over"), [("softmax", -1, "parents"), ("mean", -2, "children")]
)
def test_uniform_couplings_sum_to_one_over_what_it_declares(normalise, axis, over):
    votes = torch.randn(3, *SIZE)
    routing = bound(UniformRouting(normalise=normalise, squash="exp"))
    routed = routing(votes, None, keep="last")
    total = routed.steps[0].coupling.sum(axis)
    torch.testing.assert_close(total, torch.ones_like(total))
    assert routing.normalised_over == over
    expected = uniform_routing(votes, normalise=normalise, squash="exp").parents.pose
    assert torch.equal(routed.parents.pose, expected)
