"""Fused uniform routing is the plain one of the materialised votes, and one product."""

import re

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.ops import materialise
from torchcaps.ops import uniform_routing as plain
from torchcaps.ops.fused import uniform_routing
from torchcaps.types import Capsules, VoteMap


def test_shared_weights_on_paper():
    # W (u_1 + u_2) / 2 = 3 · (1 + 2) / 2 = 9/2 for one parent, 2 · 3 / 2 = 3 for the other
    pose = torch.tensor([[1.0], [2.0]])
    weight = torch.tensor([[[3.0]], [[2.0]]])
    routed = uniform_routing(VoteMap(Capsules(pose), weight, "all"), squash="none", keep="last")
    assert routed.parents.pose.flatten().tolist() == pytest.approx([4.5, 3.0])
    assert routed.steps[0].coupling.tolist() == [[0.5, 0.5]] * 2


VOTES = VoteMap(Capsules(torch.zeros(2, 12, 3)), torch.zeros(12, 5, 4, 3))


@pytest.mark.parametrize(
    ("vote_map", "options"),
    [
        (VOTES._replace(weight=VOTES.weight[1:]), {}),
        (VOTES, {"normalise": "sum"}),
        (VOTES, {"squash": "expo"}),
        (VOTES, {"keep": "step"}),
        (VOTES, {"bias": torch.zeros(4, 5)}),
    ],
)
def test_errors_are_those_of_the_plain_op(vote_map, options):
    with pytest.raises(TorchcapsError) as expected:
        plain(materialise(vote_map), **options)
    with pytest.raises(TorchcapsError, match=f"^{re.escape(str(expected.value))}$"):
        uniform_routing(vote_map, **options)
