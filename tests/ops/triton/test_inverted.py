"""Inverted routing by Triton is the plain one of the materialised votes: values, gradients, errors.

The interpreter takes a millisecond for a line of a kernel: sizes are tiny, and constants are
changed so that they still make several tiles and splits.
"""

import math

import pytest
import torch

from ops.fused.inverted_cases import (
    WINDOWS,
    leaves_of,
    results_of,
    routed_by,
    slots_of,
)
from torchcaps.ops.triton import votes
from torchcaps.types import Window

WHOLE, TILED = 4096, 256  # all parents in one tile; a few of them
SMALL = Window((3, 3, 2), (2, 2), (1, 1))
slow = pytest.mark.slow


def tell(monkeypatch, tile=WHOLE):
    monkeypatch.setattr(votes, "TILE", tile)
    monkeypatch.setattr(votes, "CHILDREN", 2)


def narrow(*arguments, **options):
    return {name: x.float() for name, x in leaves_of(*arguments, **options).items()}


def far_off(found, exact):
    """The largest error relative to the largest number."""
    if not exact.numel():
        return 0.0
    return float((found.double() - exact).abs().max() / exact.abs().max().clamp(min=1e-30))


def assert_law(leaves, how, device, **options):
    """Of the plain op in float64; the largest error, relative to the largest number of a tensor.

    LayerNorm of nearly equal numbers enlarges the last bits of any way to compute them: values may
    be as far off as the plain op's in single precision are at their worst.
    """
    exact = {name: x.double() for name, x in leaves.items()}
    values, gradients = results_of("plain", exact, how, options)
    plain, _ = results_of("plain", leaves, how, options)
    theirs = max((far_off(*both) for both in zip(plain, values, strict=True)), default=0.0)
    here = {name: x.to(device) for name, x in leaves.items()}
    found, of_leaves = results_of("triton", here, how, options)
    bar = max(2e-6, theirs)
    pairs = [(f"value {n}", bar, *both) for n, both in enumerate(zip(found, values, strict=True))]
    pairs += [(name, 2e-5, of_leaves[name], x) for name, x in gradients.items()]
    largest = max(float(x.abs().max()) for x in gradients.values() if x is not None and x.numel())
    for name, bar, fast, x in pairs:
        if x is None:
            assert fast is None, name
            continue
        assert (fast.shape, fast.dtype) == (x.shape, torch.float32), name
        if not x.numel():
            continue
        scale = float(x.abs().max())
        # What is zero in exact numbers has errors of the others.
        scale = scale if scale > 1e-6 * largest else largest
        error = float((fast.cpu().double() - x).abs().max())
        assert error <= bar * max(scale, 1e-30), (name, error / max(scale, 1e-30))


KINDS = [(pose, sharing) for pose in ("vector", "matrix") for sharing in ("none", "type", "all")]


@pytest.mark.parametrize("window", [None, SMALL], ids=["dense", "window"])
def test_keep_changes_no_bit_and_routing_is_its_steps(window):
    how = {"window": window}
    leaves = narrow("xns", batch=(2,), **how)
    kept = {keep: routed_by("triton", leaves, how, {}, keep) for keep in ("none", "last", "steps")}
    for routed in kept.values():
        assert torch.equal(routed.parents.pose, kept["none"].parents.pose)
    parents = leaves["start"]
    for step in kept["steps"].steps:
        (again,) = routed_by("triton", leaves | {"start": parents}, how, {"iterations": 1}).steps
        assert torch.equal(again.coupling, step.coupling)
        parents = again.parents.pose
        assert torch.equal(parents, step.parents.pose)


def test_many_parents_are_gone_over_twice(launches, monkeypatch):
    leaves = narrow("s", n_out=9)
    route = lambda: routed_by("triton", leaves, {}, {"iterations": 1}, "none")  # noqa: E731
    assert launches(route) == ["mix"]
    tell(monkeypatch, TILED)
    assert launches(route) == ["normalise", "mix"]


@pytest.mark.parametrize(
    "tile", [WHOLE, pytest.param(TILED, marks=pytest.mark.slow)], ids=["whole", "tiled"]
)
def test_flops_are_those_of_the_algorithm(tile, monkeypatch):
    tell(monkeypatch, tile)
    leaves = {name: x.requires_grad_() for name, x in narrow("n", n_out=9, window=SMALL).items()}
    agreement = 2 * (3 * 4) * slots_of(SMALL) * 9 * 5
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        pose = routed_by("triton", leaves, {"window": SMALL}, {}, "none").parents.pose
        # Votes twice; one iteration with an agreement and a sum. That parents in two tiles are gone
        # over twice is not counted.
        forward = 2 * agreement * 4 + 2 * agreement
        assert counter.get_total_flops() == forward
        pose.sum().backward()
    assert counter.get_total_flops() > 2 * forward


LARGE = Window((7, 5, 8), (3, 3), (2, 1))


@pytest.mark.gpu
@pytest.mark.parametrize("window", [*WINDOWS, LARGE], ids=str)
@pytest.mark.parametrize(("pose", "sharing"), KINDS)
@pytest.mark.parametrize(("n_out", "d_in"), [(5, 9), (200, 16)])
def test_the_law_on_a_gpu(n_out, d_in, pose, sharing, window, triton_device):
    how = {"pose": pose, "sharing": sharing, "window": window}
    leaves = narrow("bxns", batch=(5,), n_out=n_out, d_in=d_in, **how)
    scale = 1 / math.sqrt(d_in)
    assert_law(leaves, how, triton_device, iterations=3, scale=scale)
