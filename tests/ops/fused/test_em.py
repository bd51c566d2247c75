"""EM routing from a vote map: what it makes of the votes, which it never stores, is what the plain
op makes of them, in values and gradients."""

import math

import pytest
import torch

from ops.fused.em_cases import (
    ODD,
    VARIANTS,
    error,
    leaves_of,
    numbers_of,
    results_of,
    routed_by,
)
from torchcaps.ops.fused import tiles
from torchcaps.types import Window


def assert_law(leaves, how, device, dtype, **options):
    bar = 1e-10 if dtype == torch.float64 else 1e-3
    leaves = {name: x.to(device, dtype) for name, x in leaves.items()}
    values, gradients = results_of("fused", leaves, how, options)
    true_values, true_gradients = results_of("plain", leaves, how, options)
    for mine, theirs in zip(values, true_values, strict=True):
        assert (mine.shape, mine.dtype, mine.device) == (theirs.shape, theirs.dtype, theirs.device)
        assert error(mine, theirs) <= bar
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


@pytest.mark.parametrize("layout", ["strided", "expanded"])
@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
def test_children_may_lie_anyhow_in_memory(window, layout):
    how = {"pose": "matrix", "window": window}
    leaves = leaves_of(batch=(4,), **how)
    for name in ("pose", "activation"):
        if layout == "strided":
            leaves[name] = leaves[name].mT.contiguous().mT
        else:
            leaves[name] = leaves[name][:1].expand(leaves[name].shape)
    mine, theirs = (routed_by(kind, leaves, how, {}) for kind in ("fused", "plain"))
    torch.testing.assert_close(numbers_of(mine), numbers_of(theirs))


def test_bias_and_costs_of_any_broadcast_shape():
    leaves = leaves_of("bx")
    leaves["bias"], leaves["coordinates"] = leaves["bias"][:1], leaves["coordinates"][:, :1]
    leaves["beta_a"], leaves["beta_u"] = leaves["beta_a"][:1], leaves["beta_u"][0]
    assert_law(leaves, {}, "cpu", torch.float64)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
def test_half_precision_is_rounded_once(window, half):
    how = {"pose": "matrix", "window": window}
    leaves = {name: x.to(half) for name, x in leaves_of("b", **how).items()}
    wide = {name: x.float() for name, x in leaves.items()}
    mine, theirs = results_of("fused", leaves, how, {}), results_of("plain", wide, how, {})
    for a, b in zip(mine[0], theirs[0], strict=True):
        assert a.dtype == half
        torch.testing.assert_close(a.float(), b, rtol=torch.finfo(half).eps, atol=1e-5)
    for name, gradient in mine[1].items():
        assert gradient.dtype == half
        largest = theirs[1][name].abs().max()
        assert (gradient.float() - theirs[1][name]).abs().max() < 0.03 * largest, name


@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
@pytest.mark.parametrize("names", ["", "b"])
def test_autocast_gives_the_dtype_of_the_plain_op_and_the_numbers_of_float32(names, window):
    how = {"pose": "matrix", "window": window}
    leaves = {name: x.float() for name, x in leaves_of(names, **how).items()}
    with torch.autocast("cpu", torch.bfloat16):
        mine, plain = (numbers_of(routed_by(x, leaves, how, {})) for x in ("fused", "plain"))
    wide = numbers_of(routed_by("fused", leaves, how, {}))
    for a, b, exact in zip(mine, plain, wide, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, exact.to(a.dtype))
