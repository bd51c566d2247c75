"""Fused uniform routing is the plain one of the materialised votes, and one product."""

import pytest
import torch

from torchcaps.ops.fused import uniform_routing
from torchcaps.types import Capsules, VoteMap


def test_shared_weights_on_paper():
    # W (u_1 + u_2) / 2 = 3 · (1 + 2) / 2 = 9/2 for one parent, 2 · 3 / 2 = 3 for the other
    pose = torch.tensor([[1.0], [2.0]])
    weight = torch.tensor([[[3.0]], [[2.0]]])
    routed = uniform_routing(VoteMap(Capsules(pose), weight, "all"), squash="none", keep="last")
    assert routed.parents.pose.flatten().tolist() == pytest.approx([4.5, 3.0])
    assert routed.steps[0].coupling.tolist() == [[0.5, 0.5]] * 2
