"""Uniform routing: one constant is the other; numbers on paper are in on_paper.toml."""

import torch

from ops.random_votes import random_votes
from torchcaps.ops import uniform_routing


def test_scaling_the_votes_undoes_the_constant():
    # I/J turns the mean over five children into the sum over three parents.
    votes = random_votes(5, 3, 4)
    torch.testing.assert_close(
        uniform_routing(votes * 5 / 3, normalise="mean").parents,
        uniform_routing(votes, normalise="softmax").parents,
    )
