"""Convolutional capsules: every window by a loop."""

import math

import pytest
import torch

from layers.routing.bound import random_parameters
from torchcaps.layers import ConvCapsules, DenseCapsules
from torchcaps.ops import dynamic_routing, em_routing, inverted_routing
from torchcaps.types import Capsules

GRID = (5, 4, 2)
N_IN = 5 * 4 * 2
# (kernel, stride) -> rows and columns of windows of a grid of 5×4.
WINDOWS = {((3, 2), (2, 1)): (2, 3), ((2, 2), (1, 2)): (4, 2), ((1, 1), (1, 1)): (5, 4)}


def made(routing="dynamic", **options):
    """A layer in float64 whose parameters are all random, as after training."""
    sizes = {"child_grid": GRID, "d_in": 4, "types": 3, "d_out": 4} | options
    return random_parameters(ConvCapsules(**sizes, routing=routing).double(), 1 / 2)


def children(*lead, d=4):
    pose = torch.randn(*lead, N_IN, d, dtype=torch.float64)
    return Capsules(pose, torch.rand(*lead, N_IN, dtype=torch.float64))


def votes_of(pose, layer):
    """Votes [b, i, j, d] of the capsules [b, i, d] in one window."""
    if layer.pose == "vector":
        votes = torch.einsum("bid,ijod->bijo", pose, layer.weight)
    else:
        side = math.isqrt(pose.shape[-1])
        matrices = pose.reshape(*pose.shape[:2], side, side)
        votes = torch.einsum("birk,ijkc->bijrc", matrices, layer.weight).flatten(-2)
    return votes if layer.vote_bias is None else votes + layer.vote_bias


def by_window(layer, capsules):
    """For every window, row after row: its poses [b, i, d] and activations [b, i], sliced."""
    (height, width, types), (k_h, k_w), (s_h, s_w) = layer.window
    pose = capsules.pose.reshape(len(capsules.pose), height, width, types, -1)
    activation = capsules.activation.reshape(len(pose), height, width, types)
    for top in range(0, height - k_h + 1, s_h):
        for left in range(0, width - k_w + 1, s_w):
            seen = slice(top, top + k_h), slice(left, left + k_w)
            yield pose[:, *seen].flatten(1, 3), activation[:, *seen].flatten(1)


@pytest.mark.parametrize(("kernel", "stride"), WINDOWS)
@pytest.mark.parametrize(("pose", "d_out"), [("vector", 5), ("vector", 4), ("matrix", 4)])
@pytest.mark.parametrize("vote_bias", [False, True])
def test_parents_are_those_of_a_loop_over_windows(kernel, stride, pose, d_out, vote_bias):
    layer = made(kernel=kernel, stride=stride, pose=pose, d_out=d_out, vote_bias=vote_bias)
    u = children(2)
    windows = [
        dynamic_routing(votes_of(each, layer), keep="last") for each, _ in by_window(layer, u)
    ]
    expected = torch.cat([each.parents.pose for each in windows], 1)
    coupling = torch.stack([each.steps[0].coupling for each in windows], 1)
    routed = layer(u, keep="last")
    assert layer.parent_grid == (*WINDOWS[kernel, stride], 3)
    torch.testing.assert_close(routed.parents.pose, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(routed.steps[0].coupling, coupling, rtol=0, atol=1e-10)
    lengths = expected.norm(dim=-1)
    torch.testing.assert_close(routed.parents.activation, lengths, rtol=0, atol=1e-7)
    assert routed.steps[0].children is u
    assert torch.equal(routed.steps[0].parents.pose, routed.parents.pose)
    towards = torch.randn_like(expected)
    parameters = list(layer.parameters())
    gradients = torch.autograd.grad((routed.parents.pose * towards).sum(), parameters)
    expected_gradients = torch.autograd.grad((expected * towards).sum(), parameters)
    torch.testing.assert_close(gradients, expected_gradients, rtol=0, atol=1e-10)


@pytest.mark.parametrize("routing", ["em", "inverted"])
def test_other_routings_see_windows_and_activations_too(routing):
    layer = made(routing, kernel=(3, 2), stride=(2, 1), pose="matrix")
    u = children(2)
    owned = layer.routing
    poses, activations = [], []
    for pose, activation in by_window(layer, u):
        votes = votes_of(pose, layer)
        if routing == "em":
            betas = {"beta_a": owned.beta_a, "beta_u": owned.beta_u}
            parents = em_routing(votes, activation, **betas).parents
            activations.append(parents.activation)
        else:
            parents = inverted_routing(votes, norm=(owned.norm.weight, owned.norm.bias)).parents
        poses.append(parents.pose)
    found = layer(u).parents
    torch.testing.assert_close(found.pose, torch.cat(poses, 1), rtol=0, atol=1e-10)
    if activations:
        expected = torch.cat(activations, 1)
        torch.testing.assert_close(found.activation, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("routing", ["dynamic", "em", "inverted", "uniform", "self_attention"])
@pytest.mark.parametrize("pose", ["vector", "matrix"])
def test_a_kernel_as_large_as_the_grid_is_a_dense_layer(routing, pose):
    window = made(routing, kernel=(5, 4), pose=pose)
    dense = DenseCapsules(n_in=N_IN, d_in=4, n_out=3, d_out=4, pose=pose, routing=routing).double()
    dense.load_state_dict(window.state_dict())
    u = children(2)
    a, b = window(u, keep="steps"), dense(u, keep="steps")
    assert window.parent_grid == (1, 1, 3)
    torch.testing.assert_close(a.parents.pose, b.parents.pose, rtol=0, atol=1e-10)
    for one, other in zip(a.steps, b.steps, strict=True):
        torch.testing.assert_close(one.coupling[:, 0], other.coupling, rtol=0, atol=1e-10)
        torch.testing.assert_close(one.parents.pose, other.parents.pose, rtol=0, atol=1e-10)
