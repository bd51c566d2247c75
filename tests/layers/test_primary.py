"""Primary capsules: their order, and their lengths."""

import math

import pytest
import torch
from torch import nn

from torchcaps.layers import EMPrimaryCapsules, LayerNormPrimaryCapsules, PrimaryCapsules


def test_order_is_row_column_type():
    # Channel c at row y, column x holds the number cyx; two types of two components.
    types, d, h, w = 2, 2, 2, 3
    c, y, x = torch.meshgrid(
        torch.arange(types * d), torch.arange(h), torch.arange(w), indexing="ij"
    )
    features = (100 * c + 10 * y + x).double().unsqueeze(0)
    pose = PrimaryCapsules(nn.Identity(), d_out=d, squash="none")(features).pose
    expected = [
        [100 * (2 * kind) + 10 * row + column, 100 * (2 * kind + 1) + 10 * row + column]
        for row in range(h)
        for column in range(w)
        for kind in range(types)
    ]
    assert pose[0].tolist() == expected


@pytest.mark.parametrize(
    ("squash", "length"), [("hinton", 25 / 26), ("exp", 1 - math.exp(-5)), ("none", 5.0)]
)
def test_lengths_on_paper(squash, length):
    # Two positions: the pose (3, 4) and the pose zero.
    features = torch.tensor([3.0, 0.0, 4.0, 0.0], dtype=torch.float64).reshape(1, 2, 1, 2)
    found = PrimaryCapsules(nn.Identity(), d_out=2, squash=squash)(features)
    assert found.activation[0].tolist() == pytest.approx([length, 0.0], abs=1e-8)
    assert found.pose[0, 0].tolist() == pytest.approx([0.6 * length, 0.8 * length], abs=1e-8)


def test_a_filter_as_large_as_the_map_leaves_types_alone():
    whole = nn.Conv2d(6, 6, (4, 5), groups=6).double()
    features = torch.randn(2, 6, 4, 5, dtype=torch.float64)
    pose = PrimaryCapsules(whole, d_out=3, squash="none")(features).pose
    by_hand = (features * whole.weight[:, 0]).sum((2, 3)) + whole.bias
    torch.testing.assert_close(pose, by_hand.reshape(2, 2, 3), rtol=0, atol=1e-12)


def test_gradient_of_an_empty_map_is_finite():
    features = torch.zeros(1, 4, 2, 2, requires_grad=True)
    PrimaryCapsules(nn.Identity(), d_out=2)(features).activation.sum().backward()
    assert torch.equal(features.grad, torch.zeros_like(features))


def test_layer_norm_on_paper():
    # Two positions: the pose (1, 5), mean 3 and variance 4, and the pose (2, 2), variance 0.
    features = torch.tensor([1.0, 2.0, 5.0, 2.0], dtype=torch.float64).reshape(1, 2, 1, 2)
    primary = LayerNormPrimaryCapsules(nn.Identity(), d_out=2).double()
    found = primary(features)
    assert found.activation is None
    one = 2 / math.sqrt(4 + 1e-5)
    assert found.pose[0, 0].tolist() == pytest.approx([-one, one], abs=1e-12)
    assert found.pose[0, 1].tolist() == [0.0, 0.0]
    # One weight and one offset a component, whatever the capsule.
    with torch.no_grad():
        primary.norm.weight.copy_(torch.tensor([2.0, 3.0]))
        primary.norm.bias.copy_(torch.tensor([10.0, 20.0]))
    assert primary(features).pose[0, 0].tolist() == pytest.approx([10 - 2 * one, 20 + 3 * one])
    assert primary(features).pose[0, 1].tolist() == [10.0, 20.0]


def test_em_capsules_keep_their_poses():
    # Two types of two components at one row of two positions: channel c at column x holds 10c + x.
    features = torch.tensor(
        [[0.0, 1.0], [10.0, 11.0], [20.0, 21.0], [30.0, 31.0]], dtype=torch.float64
    ).reshape(1, 4, 1, 2)
    # Activations from the channels 0 and 3 over 10: logistic of 0, 3, 0.1 and 3.1.
    choose = nn.Conv2d(4, 2, 1, bias=False).double()
    with torch.no_grad():
        choose.weight.zero_()
        choose.weight[0, 0] = choose.weight[1, 3] = 0.1
    found = EMPrimaryCapsules(nn.Identity(), choose, d_out=2)(features)
    assert found.pose[0].tolist() == [[0, 10], [20, 30], [1, 11], [21, 31]]
    expected = [1 / (1 + math.exp(-z)) for z in (0, 3, 0.1, 3.1)]
    assert found.activation[0].tolist() == pytest.approx(expected)


def test_layer_norm_capsules_may_be_given_activations():
    features = torch.randn(2, 6, 3, 4)
    projection, active = nn.Conv2d(6, 6, 1), nn.Conv2d(6, 2, 1)
    bare = LayerNormPrimaryCapsules(projection, d_out=3)(features)
    given = LayerNormPrimaryCapsules(projection, active, d_out=3)(features)
    em = EMPrimaryCapsules(projection, active, d_out=3)(features)
    assert torch.equal(given.pose, bare.pose)
    assert torch.equal(given.activation, em.activation)
    assert given.activation.shape == (2, 24)
