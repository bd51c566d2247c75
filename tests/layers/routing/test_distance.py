"""Distance routing as a module: its running scale, and what it hands to its op."""

import pytest
import torch

from error_text import text_of
from layers.routing.bound import N_IN, VOTES, assert_equal, bound, random_parameters
from torchcaps.layers import DistanceRouting
from torchcaps.ops import distance_routing


@pytest.mark.parametrize("bias", [True, False])
def test_distance_hands_every_option_to_its_op(bias):
    votes, activation = torch.randn(VOTES), torch.rand(3, N_IN)
    given = {"iterations": 2, "squash": "exp", "detach": "votes"}
    routing = bound(DistanceRouting(**given, bias=bias))
    if bias:
        assert torch.equal(routing.bias, torch.full((4, 2), 0.1))
    random_parameters(routing)
    op = distance_routing(votes, activation, **given, bias=routing.bias, keep="steps")
    assert_equal(routing(votes, activation, keep="steps"), op)
    for changed in ({"iterations": 3}, {"squash": "hinton"}, {"scale": "batch"}):
        other = distance_routing(votes, activation, **given | changed, bias=routing.bias)
        assert not torch.equal(other.parents.pose, op.parents.pose)


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


def test_distance_needs_lengths():
    assert text_of(lambda: bound(DistanceRouting())(torch.randn(VOTES), None)) == (
        "distance routing keeps votes as short as their children, but the children came without "
        "lengths; give them, for example Capsules(pose, pose.norm(dim=-1))."
    )
