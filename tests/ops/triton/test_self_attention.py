"""Self-attention routing by Triton is the plain one of the materialised votes: values, gradients,
errors. Sizes are tiny, as in the tests of inverted routing."""

import pytest
import torch

from ops.fused.attention_cases import (
    assert_attention_law,
    attended_by,
    attention_leaves,
)
from ops.fused.inverted_cases import WINDOWS
from torchcaps.ops.triton import votes

WHOLE, TILED = 4096, 256  # all parents in one tile; a few of them
KINDS = [(pose, sharing) for pose in ("vector", "matrix") for sharing in ("none", "type", "all")]
slow = pytest.mark.slow


def tell(monkeypatch, tile=WHOLE):
    monkeypatch.setattr(votes, "TILE", tile)
    monkeypatch.setattr(votes, "CHILDREN", 2)


def test_two_sums_are_all_it_starts(launches, monkeypatch):
    leaves = attention_leaves("p", batch=(2,), n_out=9)
    route = lambda: attended_by("triton", leaves, {})  # noqa: E731
    assert launches(route) == ["mix", "mix"]
    tell(monkeypatch, TILED)
    assert launches(route) == ["mix", "normalise", "mix"]


def test_flops_are_those_of_its_sums():
    leaves = attention_leaves("p", batch=(2,))
    votes, agreement = 2 * (2 * 6 * 3 * 5) * 4, 2 * (2 * 6 * 3 * 5)
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        attended_by("triton", leaves, {})
    # T; votes, agreements and the sum.
    assert counter.get_total_flops() == votes + votes + 2 * agreement


def test_autocast_rounds_poses_and_weights_to_the_nearest_and_nothing_else():
    leaves = attention_leaves("p", batch=(2,))
    near = {name: x.detach().bfloat16().float() for name, x in leaves.items()}
    exact = attended_by("triton", leaves | {name: near[name] for name in ("pose", "weight")}, {})
    with torch.autocast("cpu", torch.bfloat16):
        found = attended_by("triton", leaves, {})
    assert torch.equal(found.parents.pose, exact.parents.pose.bfloat16())


@pytest.mark.gpu
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize(("pose", "sharing"), KINDS)
@pytest.mark.parametrize(("n_out", "d_in"), [(5, 9), (200, 16)])
def test_the_law_on_a_gpu(n_out, d_in, pose, sharing, window, triton_device):
    how = {"pose": pose, "sharing": sharing, "window": window}
    leaves = attention_leaves("bxp", batch=(5,), n_out=n_out, d_in=d_in, **how)
    assert_attention_law("triton", leaves, how, triton_device)
