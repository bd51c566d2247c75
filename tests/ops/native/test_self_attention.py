"""Native self-attention routing is the plain one of the materialised votes: values, gradients,
errors."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ops.fused.attention_cases import (
    assert_attention_law,
    attended_by,
    attention_leaves,
    attention_results,
)
from ops.fused.inverted_cases import ODD
from torchcaps.ops import native


@pytest.fixture(autouse=True)
def _library():
    if not native.available():
        pytest.skip("there is no C++ compiler, or TORCHCAPS_NATIVE=0")


def test_the_law_of_many_children():
    leaves = attention_leaves("p", batch=(6,), n_in=200, n_out=10, d_in=8, d_out=16)
    assert_attention_law("native", leaves, {})


@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
def test_priors_broadcast_as_in_the_plain_op(window):
    how = {"window": window}
    slots = 12 if window else 6
    for shape in ((3,), (slots, 1), (1, 3), (1, 1, slots, 3)):
        leaves = attention_leaves("x", **how) | {"prior": torch.randn(shape)}
        if window is None:
            leaves["prior"] = leaves["prior"].reshape(shape[-3:])
        assert_attention_law("native", leaves, how)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_rounded_once(half):
    how = {"pose": "matrix", "window": ODD}
    leaves = {name: x.to(half) for name, x in attention_leaves("xp", **how).items()}
    wide = {name: x.float() for name, x in leaves.items()}
    mine, theirs = (attention_results("native", x, how) for x in (leaves, wide))
    for name in ("pose", "coupling"):
        assert torch.equal(mine[name], theirs[name].to(half))
    for name, x in leaves.items():
        assert (mine[f"of {name}"].shape, mine[f"of {name}"].dtype) == (x.shape, half)


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
