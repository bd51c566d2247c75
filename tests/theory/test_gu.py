"""[gu2021] §3.1: without routing and with one weight for all children, a capsule layer is a linear
layer on the average capsule. (Derived there from the uniform average of votes; exact.)"""

import pytest
import torch

from torchcaps.ops import materialise, squash, uniform_routing
from torchcaps.types import Capsules, VoteMap


@pytest.mark.parametrize("kind", ["hinton", "exp", "none"])
def test_uniform_routing_with_shared_weights_is_linear_of_the_mean(kind):
    u, weight = torch.randn(3, 50, 8).double(), torch.randn(10, 16, 8).double()
    votes = materialise(VoteMap(Capsules(u), weight, sharing="all"))
    pose = uniform_routing(votes, normalise="mean", squash=kind).parents.pose
    linear = torch.nn.functional.linear(u.mean(-2), weight.flatten(0, 1)).unflatten(-1, (10, 16))
    torch.testing.assert_close(pose, squash(linear, kind), rtol=0, atol=1e-12)


def test_it_is_a_convolution_and_a_global_average():
    # Children (position, type) that share W by type: a grouped 1×1 convolution, averaged over the
    # grid, then over the types.
    for _ in range(20):
        height, width, types, d_in, n_out, d_out = torch.randint(2, 8, (6,)).tolist()
        grid = torch.randn(2, types * d_in, height, width).double()
        weight = torch.randn(types, n_out, d_out, d_in).double()
        convolved = torch.nn.functional.conv2d(
            grid, weight.reshape(types * n_out * d_out, d_in, 1, 1), groups=types
        )
        expected = convolved.mean((-2, -1)).reshape(2, types, n_out, d_out).mean(1)
        u = grid.reshape(2, types, d_in, -1).permute(0, 3, 1, 2).flatten(1, 2)
        votes = materialise(VoteMap(Capsules(u), weight, sharing="type"))
        pose = uniform_routing(votes, normalise="mean", squash="none").parents.pose
        assert (pose - expected).abs().max() < 1e-12


def test_own_weights_break_the_identity():
    u, weight = torch.randn(3, 50, 8).double(), torch.randn(50, 10, 16, 8).double()
    votes = materialise(VoteMap(Capsules(u), weight))
    pose = uniform_routing(votes, normalise="mean", squash="none").parents.pose
    linear = torch.einsum("bd,jod->bjo", u.mean(-2), weight.mean(0))
    assert (pose - linear).abs().max() > 0.1
