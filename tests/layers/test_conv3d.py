"""3-D convolutional capsules: votes by loops, parity with the twin."""

import itertools
import math

import pytest
import torch

from layers.routing.bound import random_parameters
from reference.conv3d import conv3d_routing as twin
from torchcaps.layers import Conv3dCapsules
from torchcaps.types import Capsules

# Not square, and the numbers of types and components differ from each other and from side to side.
SIZES = {"child_grid": (3, 2, 2), "d_in": 3, "types": 4, "d_out": 2}
N_IN = 12


def made(**options):
    """A layer in float64 whose parameters are all random, as after training."""
    return random_parameters(Conv3dCapsules(**SIZES | options).double())


def children(*lead, n=N_IN, d=SIZES["d_in"]):
    return Capsules(torch.randn(*lead, n, d, dtype=torch.float64))


def loop_votes(pose, layer):
    """Votes [i, j, d] of poses [h * w * type, d]: a filter on every position, zeros outside."""
    height, width, types_in = layer.child_grid
    types = layer.parent_grid[2]
    size = layer.weight.shape[-1]
    pose = pose.reshape(height, width, types_in, layer.d_in)
    filters = layer.weight.reshape(types, layer.d_out, layer.d_in, size, size)
    votes = []
    for i, y, x, z, k in itertools.product(
        *map(range, (types_in, height, width, types, layer.d_out))
    ):
        total = pose.new_zeros(())
        for down, right, m in itertools.product(range(size), range(size), range(layer.d_in)):
            row, column = y + down - size // 2, x + right - size // 2
            if 0 <= row < height and 0 <= column < width:
                total = total + filters[z, k, m, down, right] * pose[row, column, i, m]
        votes.append(total)
    return torch.stack(votes).reshape(types_in, height * width * types, layer.d_out)


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"kernel": 1},
        {"child_grid": (2, 3, 1), "kernel": 5},
        {"child_grid": (1, 1, 3), "types": 1, "d_in": 1, "d_out": 1},
    ],
    ids=str,
)
def test_votes_are_those_of_loops(sizes):
    layer = made(**sizes)
    pose = children(2, n=layer.n_in, d=layer.d_in).pose
    expected = torch.stack([loop_votes(sample, layer) for sample in pose])
    torch.testing.assert_close(layer.votes(Capsules(pose)), expected, rtol=0, atol=1e-12)
    with torch.no_grad():
        predicted = layer.votes(Capsules(pose))
    torch.testing.assert_close(predicted, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("squash_over", ["map", "pose"])
def test_parity_with_the_twin(squash_over, bias):
    layer = made(squash_over=squash_over, iterations=2, bias=bias)
    pose = children(2).pose.requires_grad_()
    votes = torch.stack([loop_votes(sample, layer) for sample in pose])
    expected, couplings = twin(
        votes, parent_grid=(3, 2, 4), iterations=2, bias=layer.bias, squash_over=squash_over
    )
    routed = layer(Capsules(pose), keep="steps")
    torch.testing.assert_close(routed.parents.pose, expected, rtol=0, atol=1e-10)
    found = [step.coupling for step in routed.steps]
    torch.testing.assert_close(found, couplings, rtol=0, atol=1e-10)
    towards = torch.randn_like(expected)
    leaves = [pose, *layer.parameters()]
    gradients = torch.autograd.grad((routed.parents.pose * towards).sum(), leaves)
    expected_gradients = torch.autograd.grad((expected * towards).sum(), leaves)
    torch.testing.assert_close(gradients, expected_gradients, rtol=0, atol=1e-10)


def test_a_row_of_couplings_belongs_to_a_child_type():
    layer, pose = made(), children().pose
    silent = pose.reshape(3, 2, 2, 3).clone()
    silent[:, :, 1] = 0
    coupling = layer(Capsules(silent.reshape(N_IN, 3)), keep="last").steps[0].coupling
    torch.testing.assert_close(coupling[1], torch.full_like(coupling[1], 1 / 24))
    assert (coupling[0] - 1 / 24).abs().max() > 1e-3


def test_weights_are_he_normal_and_biases_start_at_a_tenth():
    layer = Conv3dCapsules(child_grid=(4, 4, 3), d_in=8, types=32, d_out=8)
    assert layer.weight.shape == (256, 1, 8, 3, 3)
    # 18,432 numbers: their deviation is known to 1/√36864 = 0.5 %.
    assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / 72), rel=0.03)
    assert abs(layer.weight.mean().item()) < 0.005
    assert torch.equal(layer.bias, torch.full((32, 8), 0.1))
    # The routed layer of DeepCaps: 8·3·3 · 32·8 weights and 32·8 biases.
    assert sum(parameter.numel() for parameter in layer.parameters()) == 18_432 + 256
    assert [name for name, _ in Conv3dCapsules(**SIZES, bias=False).named_parameters()] == [
        "weight"
    ]
