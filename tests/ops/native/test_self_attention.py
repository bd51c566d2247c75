"""Native self-attention routing is the plain one of the materialised votes: values, gradients,
errors."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from ops.fused.attention_cases import (
    assert_attention_law,
    attended_by,
    attention_leaves,
)
from torchcaps.ops import native


@pytest.fixture(autouse=True)
def _library():
    if not native.available():
        pytest.skip("there is no C++ compiler, or TORCHCAPS_NATIVE=0")


def test_the_law_of_many_children():
    leaves = attention_leaves("p", batch=(6,), n_in=200, n_out=10, d_in=8, d_out=16)
    assert_attention_law("native", leaves, {})


def test_flops_are_those_of_its_sums():
    leaves = attention_leaves("p", batch=(7,), n_in=16, n_out=10, d_in=8, d_out=16)
    leaves = {name: x.requires_grad_() for name, x in leaves.items()}
    votes, agreement = 2 * 7 * 16 * 10 * 16 * 8, 2 * 7 * 16 * 10 * 16
    with FlopCounterMode(display=False) as counter:
        pose = attended_by("native", leaves, {}, keep="none").parents.pose
        # T; votes for agreements and for the sum.
        assert counter.get_total_flops() == votes + 2 * votes + 2 * agreement
        pose.sum().backward()
    # Gradients of children and weights, for the first one and for the last.
    assert counter.get_total_flops() >= 3 * votes + 2 * votes + 4 * votes
