"""EM routing from a vote map: what it makes of the votes, which it never stores, is what the plain
op makes of them, in values and gradients."""

import math

import pytest
import torch

from ops.fused.em_cases import (
    VARIANTS,
    error,
    leaves_of,
    results_of,
)
from torchcaps.ops.fused import tiles
from torchcaps.types import Window


def assert_law(leaves, how, device, dtype, **options):
    bar = 1e-10 if dtype == torch.float64 else 1e-3
    leaves = {name: x.to(device, dtype) for name, x in leaves.items()}
    values, gradients = results_of("fused", leaves, how, options)
    true_values, true_gradients = results_of("plain", leaves, how, options)
    for fast, theirs in zip(values, true_values, strict=True):
        assert (fast.shape, fast.dtype, fast.device) == (theirs.shape, theirs.dtype, theirs.device)
        assert error(fast, theirs) <= bar
    for name, theirs in true_gradients.items():
        assert gradients[name].shape == theirs.shape, name
        assert error(gradients[name], theirs) <= bar, name


@pytest.fixture(params=["whole", "ragged", "single"])
def tile(request, monkeypatch):
    """All votes in one tile; a few children and some lanes; one child and lane."""
    budget = {"whole": None, "ragged": 1000, "single": 1}[request.param]
    if budget is not None:
        monkeypatch.setattr(tiles, "TILE_BYTES", budget)
    return request.param


@pytest.mark.parametrize("child", [0, slice(None)], ids=["one", "all"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_law_of_children_that_are_not_there(variant, child, device, dtype):
    leaves = leaves_of()
    leaves["activation"][:, child] = 0.0
    assert_law(leaves, {}, device, dtype, variant=variant)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("window", [None, Window((7, 5, 8), (3, 3), (2, 1))], ids=str)
@pytest.mark.parametrize("pose", ["vector", "matrix"])
def test_single_precision_errs_at_most_twice_as_much_as_the_plain_op(
    pose, window, variant, monkeypatch
):
    monkeypatch.setattr(tiles, "TILE_BYTES", 20_000)
    how = {"pose": pose, "window": window}
    options = {"variant": variant}
    squares = {"fused": {}, "plain": {}}
    for _ in range(6):
        sizes = {"n_in": 72, "n_out": 10, "d_in": 16, "d_out": 16}
        narrow = {x: y.float() for x, y in leaves_of("b", batch=(5,), **sizes, **how).items()}
        exact = results_of("plain", {x: y.double() for x, y in narrow.items()}, how, options)
        exact = dict(enumerate(exact[0])) | exact[1]
        for kind, sums in squares.items():
            values, gradients = results_of(kind, narrow, how, options)
            for name, x in (dict(enumerate(values)) | gradients).items():
                worse = (x - exact[name]).square().sum() / exact[name].square().sum()
                # Ten costs say little each.
                name = "beta" if name in ("beta_a", "beta_u") else name
                sums[name] = sums.get(name, 0) + float(worse)
    for name, square in squares["fused"].items():
        least = torch.finfo(torch.float32).eps
        assert math.sqrt(square) <= 2 * max(math.sqrt(squares["plain"][name]), least), name
