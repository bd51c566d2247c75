"""Self-attention routing by Triton is the plain one of the materialised votes: values, gradients,
errors. Sizes are tiny, as in the tests of inverted routing."""

import pytest
import torch

from ops.fused.attention_cases import (
    assert_attention_law,
    attended_by,
    attention_leaves,
    attention_results,
)
from ops.fused.inverted_cases import WINDOWS
from torchcaps.ops.triton import votes
from torchcaps.types import Window

WHOLE, TILED = 4096, 256  # all parents in one tile; a few of them
SMALL = Window((3, 3, 2), (2, 2), (1, 1))
KINDS = [(pose, sharing) for pose in ("vector", "matrix") for sharing in ("none", "type", "all")]
slow = pytest.mark.slow


def tell(monkeypatch, tile=WHOLE):
    monkeypatch.setattr(votes, "TILE", tile)
    monkeypatch.setattr(votes, "CHILDREN", 2)


@pytest.mark.parametrize("half", [pytest.param(torch.float16, marks=slow), torch.bfloat16], ids=str)
def test_half_precision_is_rounded_once(half):
    how = {"pose": "matrix", "window": SMALL}
    leaves = {n: x.to(half) for n, x in attention_leaves("xp", batch=(1,), **how).items()}
    wide = {name: x.float() for name, x in leaves.items()}
    mine, theirs = (attention_results("triton", x, how) for x in (leaves, wide))
    for name in ("pose", "coupling"):
        assert torch.equal(mine[name], theirs[name].to(half))
    for name, x in leaves.items():
        assert (mine[f"of {name}"].shape, mine[f"of {name}"].dtype) == (x.shape, half)


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


@pytest.mark.gpu
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize(("pose", "sharing"), KINDS)
@pytest.mark.parametrize(("n_out", "d_in"), [(5, 9), (200, 16)])
def test_the_law_on_a_gpu(n_out, d_in, pose, sharing, window, triton_device):
    how = {"pose": pose, "sharing": sharing, "window": window}
    leaves = attention_leaves("bxp", batch=(5,), n_out=n_out, d_in=d_in, **how)
    assert_attention_law("triton", leaves, how, triton_device)
