"""Primary capsules: their order, their lengths, and feature maps that do not fit."""

import math
import re

import pytest
import torch
from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers import PrimaryCapsules


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


@pytest.mark.parametrize("shape", [[1, 8, 2, 2], [1, 9, 4]])
def test_maps_that_do_not_fit(shape):
    expected = (
        "primary capsules of 3 components need a feature map [batch, channel, height, width] with "
        f"a multiple of 3 channels, but the projection gave shape {shape}."
    )
    with pytest.raises(TorchcapsError, match=re.escape(expected)):
        PrimaryCapsules(nn.Identity(), d_out=3)(torch.zeros(shape))


def test_a_capsule_needs_a_component():
    with pytest.raises(
        TorchcapsError, match=r"^PrimaryCapsules needs d_out of at least 1, but got 0"
    ):
        PrimaryCapsules(nn.Identity(), d_out=0)
