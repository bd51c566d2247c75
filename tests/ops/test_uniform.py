"""Uniform routing: both constants on paper."""

import pytest
import torch

from torchcaps.ops import uniform_routing


def random_votes(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize(
    ("normalise", "expected", "share"),
    [
        # three children, two parents: (1 + 2 + 6)/2 and (1 + 1 + 1)/2
        ("softmax", [4.5, 1.5], 1 / 2),
        # (1 + 2 + 6)/3 and (1 + 1 + 1)/3
        ("mean", [3.0, 1.0], 1 / 3),
    ],
)
def test_constants_on_paper(normalise, expected, share):
    votes = torch.tensor([[[1.0], [1.0]], [[2.0], [1.0]], [[6.0], [1.0]]], dtype=torch.float64)
    routed = uniform_routing(votes, normalise=normalise, squash="none", keep="last")
    assert routed.parents.pose.flatten().tolist() == pytest.approx(expected)
    assert torch.equal(routed.steps[0].coupling, torch.full((3, 2), share, dtype=torch.float64))


def test_scaling_the_votes_undoes_the_constant():
    # I/J turns the mean over five children into the sum over three parents.
    votes = random_votes(5, 3, 4)
    torch.testing.assert_close(
        uniform_routing(votes * 5 / 3, normalise="mean").parents,
        uniform_routing(votes, normalise="softmax").parents,
    )
