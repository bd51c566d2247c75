"""Norms and cancellation of gradients on paper, and what has none."""

import math

import pytest
import torch

from torchcaps.analysis import gradient_cancellation, gradient_norms
from torchcaps.layers import DenseCapsules
from torchcaps.ops import margin_loss
from torchcaps.types import Capsules, LayerTrace, Routed


def linear(pose, weight):
    """Parents that are the sums of votes, and the trace of it."""
    children = Capsules(pose)
    parents = Capsules(torch.einsum("kid,ijed->kje", pose, weight))
    return (LayerTrace("classes", children, Routed(parents), weight=weight),)


def test_norms_on_paper():
    # Two images of two children with two numbers each, one parent of one: v = w_1·u_1 + w_2·u_2.
    pose = torch.tensor([[[1.0, 0], [0, 2]], [[3.0, 4], [0, 0]]]).double().requires_grad_()
    weight = torch.tensor([[[[3.0, 4]]], [[[0, 0]]]]).double().requires_grad_()
    trace = linear(pose, weight)
    (row,) = gradient_norms(trace[0].routed.parents.pose.sum(), trace).layers
    # ∂v/∂u_i = w_i; ∂v/∂w_i = the sum of u_i over images.
    assert row.capsules.tolist() == [5, 0]
    assert row.matrices.flatten().tolist() == pytest.approx([math.hypot(4, 4), 2])


def test_what_the_loss_does_not_reach_has_none():
    pose = torch.ones(1, 2, 2).double().requires_grad_()
    weight = torch.ones(2, 1, 1, 2).double().requires_grad_()
    (row,) = gradient_norms(pose[:, 0].sum(), linear(pose, weight)).layers
    assert row.capsules.tolist() == pytest.approx([math.sqrt(2), 0])
    assert row.matrices.flatten().tolist() == [0, 0]


@pytest.mark.parametrize(
    ("second", "cosine", "chi"),
    [
        ([3.0, 4.0], 1, 0),
        ([-3.0, -4.0], -1, 1),
        ([0.0, 0.0], 0, 0),
        ([-4.0, 3.0], 0, 1 - math.sqrt(50) / 10),
        ([-1.5, -2.0], -1, 1 - 2.5 / 7.5),
    ],
)
def test_cancellation_on_paper(second, cosine, chi):
    first = {"W": torch.tensor([[3.0], [4.0]])}
    row, whole = gradient_cancellation(first, {"W": torch.tensor(second).view(2, 1)}).weights
    assert (row.name, whole.name) == ("W", "all")
    for each in (row, whole):
        assert (each.cosine, each.chi) == (pytest.approx(cosine), pytest.approx(chi))


def opposed(layer, pose, label):
    """Gradients of the margin loss of one image."""
    length = layer(Capsules(pose)).parents.pose.norm(dim=-1)
    (found,) = torch.autograd.grad(margin_loss(length, torch.tensor([label])), [layer.weight])
    return {"W": found}


@pytest.mark.parametrize("routing", ["dynamic", "uniform"])
def test_opposites_without_bias_cancel_where_their_labels_differ(routing):
    layer = DenseCapsules(n_in=1, d_in=3, n_out=2, d_out=4, routing=routing).double()
    pose = torch.randn(1, 1, 3, dtype=torch.float64)
    # Lengths of (m⁺ + λ m⁻) / (1 + λ) = 0.95 / 1.5, at which both slopes of the loss are as steep.
    # Of couplings of ½ and squash |s|² / (1 + |s|²), |s|² is 0.95 / 0.55.
    with torch.no_grad():
        vote = torch.einsum("kid,ijed->kje", pose, layer.weight)
        layer.weight *= (2 * math.sqrt(0.95 / 0.55) / vote.norm(dim=-1)).view(1, 2, 1, 1)
    other = gradient_cancellation(opposed(layer, pose, 0), opposed(layer, -pose, 1)).weights[0]
    assert (other.cosine, other.chi) == (pytest.approx(-1), pytest.approx(1))
    # The control: of one label, x and −x are the same image to this layer.
    same = gradient_cancellation(opposed(layer, pose, 0), opposed(layer, -pose, 0)).weights[0]
    assert (same.cosine, same.chi) == (pytest.approx(1), pytest.approx(0, abs=1e-12))


def test_all_is_one_vector():
    first = {"A": torch.tensor([1.0]), "B": torch.tensor([1.0, 0])}
    second = {"A": torch.tensor([1.0]), "B": torch.tensor([-1.0, 0])}
    a, b, whole = gradient_cancellation(first, second).weights
    assert (a.chi, b.chi) == (0, 1)
    assert (whole.cosine, whole.chi) == (0, pytest.approx(1 - 2 / math.sqrt(8)))


def test_dead_gradients_do_not_cancel():
    zero = {"W": torch.zeros(2)}
    (row, _) = gradient_cancellation(zero, zero).weights
    assert (row.cosine, row.chi) == (0, 0)
