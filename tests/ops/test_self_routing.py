"""Self-routing: children that are not there, and what it is not told by."""

import math

import torch

from torchcaps.ops import self_routing

VOTES = torch.tensor([[[2.0], [4.0]], [[6.0], [8.0]]], dtype=torch.float64)  # [i, j, d]
POSES = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
# Child 0 goes to parent 0 with a logit of ln 3; child 1 reads nothing.
WEIGHT = torch.zeros(2, 2, 2, dtype=torch.float64)
WEIGHT[0, 0, 0] = math.log(3)


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
