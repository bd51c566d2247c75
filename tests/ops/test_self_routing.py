"""Self-routing: one pass on paper, children that are not there, and what it is not told by."""

import math

import pytest
import torch

from torchcaps.ops import self_routing

VOTES = torch.tensor([[[2.0], [4.0]], [[6.0], [8.0]]], dtype=torch.float64)  # [i, j, d]
POSES = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
# Child 0 goes to parent 0 with a logit of ln 3; child 1 reads nothing.
WEIGHT = torch.zeros(2, 2, 2, dtype=torch.float64)
WEIGHT[0, 0, 0] = math.log(3)


def test_one_pass_on_paper():
    # c = [[3/4, 1/4], [1/2, 1/2]], a = [1, 1/2]: a_0 = (3/4 + 1/4) / 1.5 = 2/3,
    # v_0 = (3/4 · 2 + 1/4 · 6) / 1 = 3, v_1 = (1/4 · 4 + 1/4 · 8) / (1/2) = 6
    activation = torch.tensor([1.0, 0.5], dtype=torch.float64)
    parents, steps, _ = self_routing(VOTES, activation, poses=POSES, weight=WEIGHT, keep="last")
    assert steps[0].coupling.flatten().tolist() == pytest.approx([0.75, 0.25, 0.5, 0.5])
    assert parents.pose.flatten().tolist() == pytest.approx([3, 6])
    assert parents.activation.tolist() == pytest.approx([2 / 3, 1 / 3])


def test_without_activations_children_count_alike():
    # a_0 = (3/4 + 1/2) / 2 = 5/8, v_0 = (3/4 · 2 + 1/2 · 6) / (5/4) = 3.6
    parents = self_routing(VOTES, poses=POSES, weight=WEIGHT).parents
    assert parents.activation.tolist() == pytest.approx([0.625, 0.375])
    assert parents.pose[0].tolist() == pytest.approx([3.6])


def test_a_bias_moves_a_child_whatever_its_pose():
    bias = torch.tensor([[0.0, 0.0], [0.0, math.log(4)]], dtype=torch.float64)
    routed = self_routing(VOTES, poses=POSES, weight=WEIGHT, bias=bias, keep="last")
    assert routed.steps[0].coupling[1].tolist() == pytest.approx([0.2, 0.8])


def test_votes_move_no_coupling():
    ways = [
        self_routing(scale * VOTES, poses=POSES, weight=WEIGHT, keep="last") for scale in (1, -9)
    ]
    assert torch.equal(ways[0].steps[0].coupling, ways[1].steps[0].coupling)
    assert torch.equal(ways[0].parents.activation, ways[1].parents.activation)


def test_children_that_are_not_there_leave_parents_and_gradients_finite():
    nobody = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    parents = self_routing(VOTES, nobody, poses=POSES, weight=WEIGHT).parents
    assert not parents.activation.any()
    assert not parents.pose.any()
    (parents.activation.sum() + parents.pose.sum()).backward()
    assert nobody.grad.isfinite().all()
