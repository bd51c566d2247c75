"""Inverted routing from a vote map: what it makes of the votes, which it never stores, is what the
plain op makes of them, in values and gradients."""

import pytest
import torch

from ops.fused.inverted_cases import (
    ODD,
    error,
    leaves_of,
    results_of,
    routed_by,
    vote_map_of,
)
from torchcaps.ops import inverted_step as plain_step
from torchcaps.ops import materialise
from torchcaps.ops.fused import inverted_routing, tiles, window_sums
from torchcaps.types import Window


def assert_law(leaves, how, device, dtype, bars=None, **options):
    """`bars` of values and gradients, else those of the dtype whatever the sizes."""
    usual = 1e-10 if dtype == torch.float64 else 1e-4
    bar, gradient_bar, least = (*bars, 0.0) if bars else (usual, usual, 1.0)
    leaves = {name: x.to(device, dtype) for name, x in leaves.items()}
    values, gradients = results_of("fused", leaves, how, options)
    true_values, true_gradients = results_of("plain", leaves, how, options)
    for fast, theirs in zip(values, true_values, strict=True):
        assert (fast.shape, fast.dtype, fast.device) == (theirs.shape, theirs.dtype, theirs.device)
        assert error(fast, theirs, least) <= bar
    for name, theirs in true_gradients.items():
        assert (gradients[name] is None) == (theirs is None), name
        if theirs is not None:
            assert gradients[name].shape == theirs.shape, name
            assert error(gradients[name], theirs, least) <= gradient_bar, name


@pytest.fixture(params=["whole", "ragged", "single"])
def tile(request, monkeypatch):
    """All votes in one tile; a few children, some lanes and images; one child and lane."""
    budget = {"whole": None, "ragged": 1000, "single": 1}[request.param]
    if budget is not None:
        monkeypatch.setattr(tiles, "TILE_BYTES", budget)
        monkeypatch.setattr(window_sums, "CHUNK_BYTES", budget)
    return request.param


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("window", [None, Window((7, 5, 8), (3, 3), (2, 1))], ids=str)
@pytest.mark.parametrize("pose", ["vector", "matrix"])
def test_the_law_in_single_precision(pose, window, seed, device, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_BYTES", 20_000)
    how = {"pose": pose, "window": window}
    torch.manual_seed(seed)
    sizes = {"n_in": 72, "n_out": 10, "d_in": 16, "d_out": 16}
    leaves = leaves_of("bn", batch=(5,), **sizes, **how)
    options = {"iterations": 3, "scale": 0.25}
    assert_law(leaves, how, device, torch.float32, bars=(2e-6, 2e-5), **options)


@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
@pytest.mark.parametrize("started", [False, True])
def test_routing_is_its_steps(started, window):
    how = {"pose": "matrix", "window": window}
    leaves = {x: y.float() for x, y in leaves_of("bxns" if started else "bxn", **how).items()}
    norm = (leaves["norm_weight"], leaves["norm_bias"])
    options = {"norm": norm, "scale": 0.5, "iterations": 1}
    vote_map, parents = vote_map_of(leaves, **how), leaves.get("start")
    routed = routed_by("fused", leaves, how, {"iterations": 4, "scale": 0.5})
    for kept in routed.steps:
        (step,) = inverted_routing(vote_map, start=parents, **options, keep="last").steps
        quick = inverted_routing(vote_map, start=parents, **options)
        assert step.children is None
        assert step.parents.activation is None
        assert torch.equal(step.coupling, kept.coupling)
        assert torch.equal(step.parents.pose, kept.parents.pose)
        assert torch.equal(quick.parents.pose, kept.parents.pose)
        assert quick.steps == ()
        parents = step.parents.pose
    assert torch.equal(parents, routed.parents.pose)


@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
def test_the_first_couplings_are_uniform(window):
    how = {"window": window}
    leaves = leaves_of(**how)
    first = routed_by("fused", leaves, how, {}).steps[0].coupling
    assert torch.equal(first, torch.full_like(first, 1 / 3))


@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
@pytest.mark.parametrize("pose", ["vector", "matrix"])
def test_negated_children_negate_the_parents(pose, window):
    how = {"pose": pose, "window": window}
    plus = leaves_of("n", **how)
    plus["norm_bias"].zero_()
    minus = plus | {"pose": -plus["pose"]}
    pair = (routed_by("fused", x, how, {"iterations": 4}) for x in (plus, minus))
    for a, b in zip(*(routed.steps for routed in pair), strict=True):
        assert torch.equal(a.coupling, b.coupling)
        assert torch.equal(a.parents.pose, -b.parents.pose)


@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
def test_a_step_is_the_plain_step(window):
    how = {"pose": "matrix", "window": window}
    leaves = leaves_of("bx", **how)
    vote_map = vote_map_of(leaves, **how)
    parents = torch.randn_like(plain_step(materialise(vote_map), None).parents.pose)
    for given in (None, parents):
        (fast,) = inverted_routing(
            vote_map, start=given, scale=0.5, iterations=1, keep="steps"
        ).steps
        theirs = plain_step(materialise(vote_map), given, scale=0.5)
        torch.testing.assert_close(fast, theirs, rtol=0, atol=1e-12)
