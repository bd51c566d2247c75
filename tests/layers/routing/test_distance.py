"""Distance routing as a module: its running scale, and what it hands to its op."""

import torch

from layers.routing.bound import N_IN, VOTES, assert_equal, bound
from torchcaps.layers import DistanceRouting
from torchcaps.ops import distance_routing


def test_the_scale_of_a_batch_is_learned_and_used_in_evaluation():
    votes, activation = torch.randn(VOTES), torch.rand(3, N_IN)
    routing = bound(DistanceRouting(iterations=3, scale="batch"))
    assert torch.equal(routing.running_scale, torch.ones(2))
    trained = routing.train()(votes, activation, keep="steps")
    assert_equal(trained, distance_routing(votes, activation, scale="batch", keep="steps"))
    # A tenth of what came, nine of what was there.
    expected = 0.9 + 0.1 * trained.scale
    torch.testing.assert_close(routing.running_scale, expected)
    stored = routing.running_scale.clone()
    evaluated = routing.eval()(votes, activation, keep="steps")
    assert_equal(evaluated, distance_routing(votes, activation, scale=stored, keep="steps"))
    assert torch.equal(routing.running_scale, stored)
    assert "running_scale" not in dict(bound(DistanceRouting()).named_buffers())
