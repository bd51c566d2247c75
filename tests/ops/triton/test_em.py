"""EM routing by Triton is the plain one of the materialised votes: values, gradients, errors.

The interpreter takes a millisecond for a line of a kernel: sizes are tiny, and constants are
changed so that they still make several tiles and splits.
"""

import pytest
import torch

from ops.fused.em_cases import (
    VARIANTS,
    WINDOWS,
    leaves_of,
    results_of,
    routed_by,
)
from torchcaps.ops.fused.em import Shared
from torchcaps.ops.fused.tiles import MadeOf
from torchcaps.ops.triton import em, votes
from torchcaps.types import Window

WHOLE, TILED = 4096, 256  # all parents in one tile; a few of them
SMALL = Window((3, 3, 2), (2, 2), (1, 1))
# Relative to the size of a tensor. The costs are few, and so are the errors that even out in one.
BARS = {"values": 2e-6, "gradients": 2e-5, "beta_a": 1e-4, "beta_u": 1e-4}
slow = pytest.mark.slow


def tell(monkeypatch, tile=WHOLE):
    monkeypatch.setattr(votes, "TILE", tile)
    monkeypatch.setattr(votes, "CHILDREN", 2)


def narrow(*arguments, **options):
    return {name: x.float() for name, x in leaves_of(*arguments, **options).items()}


def parts(results):
    """Every tensor by its name, with the bar for it."""
    values, gradients = results
    found = {f"value {n}": (x, BARS["values"]) for n, x in enumerate(values)}
    return found | {name: (x, BARS.get(name, BARS["gradients"])) for name, x in gradients.items()}


def assert_law(leaves, how, device, **options):
    """Within the bars of float64; where single precision does not reach them, about as far from it
    as the plain op is."""
    exact = parts(results_of("plain", {x: y.double() for x, y in leaves.items()}, how, options))
    plain = parts(results_of("plain", leaves, how, options))
    here = {name: x.to(device) for name, x in leaves.items()}
    fast = parts(results_of("triton", here, how, options))
    # What hardly depends on anything has gradients of rounding errors.
    floor = 1e-6 * max(float(x.norm()) for x, _ in exact.values())
    for name, (x, bar) in exact.items():
        found = fast[name][0]
        assert (found.shape, found.dtype) == (x.shape, torch.float32), name
        scale = max(float(x.norm()), floor, 1e-30)
        error, theirs = (float((y[name][0].cpu() - x).norm()) / scale for y in (fast, plain))
        assert error <= max(bar, 4 * theirs), (name, error, theirs)


def competing(window):
    return ["window"] if window is None else ["window", "all"]


KINDS = [(pose, sharing) for pose in ("vector", "matrix") for sharing in ("none", "type", "all")]
SEEN = [(window, compete) for window in WINDOWS for compete in competing(window)]


@slow
@pytest.mark.parametrize("variant", ["paper", "gritzman", "official"])
def test_errors_are_those_of_the_plain_op(variant):
    """In the mean over samples, however small variances are."""
    squares, how, options = {"triton": {}, "plain": {}}, {"pose": "matrix"}, {"variant": variant}
    for _ in range(12):
        leaves = narrow("b", n_in=8, d_in=16, pose="matrix")
        exact = parts(results_of("plain", {x: y.double() for x, y in leaves.items()}, how, options))
        for kind, sums in squares.items():
            for name, (x, bar) in parts(results_of(kind, leaves, how, options)).items():
                worse = (x - exact[name][0]).square().sum() / exact[name][0].square().sum()
                sums[bar] = sums.get(bar, 0) + float(worse)
    for bar, square in squares["triton"].items():
        assert square**0.5 <= 2 * squares["plain"][bar] ** 0.5, bar


def test_a_variance_does_not_feel_where_its_mean_was_rounded_to():
    """What moves all votes alike has no gradient, however far they are from zero."""
    pose, weight = torch.randn(2, 5, 4) / 100, torch.randn(5, 3, 4, 4)
    coordinates = torch.full((5, 4), 1000.0, requires_grad=True)
    share = torch.rand(2, 1, 5, 3).softmax(2)
    votes = MadeOf(pose, weight, None, coordinates, "none", "vector", [], torch.float32)
    variance = em.moments(Shared(share, votes)).variance
    (gradient,) = torch.autograd.grad(variance.sum(), coordinates)
    assert gradient.abs().max() > 1e-3
    assert gradient.sum(0).abs().max() <= 1e-7


def test_votes_are_made_anew_for_every_moment(launches, monkeypatch):
    leaves, options = narrow(n_in=2, n_out=9), {"iterations": 2, "variance_floor": 0.05}
    route = lambda: routed_by("triton", leaves, {}, options, "none")  # noqa: E731
    fit = ["moments", "moments"]
    assert launches(route) == [*fit, "slopes", *fit]
    tell(monkeypatch, TILED)
    assert launches(route) == [*fit, *["slopes"] * 5, *fit]


@pytest.mark.parametrize("child", [0, slice(None)], ids=["one", "all"])
def test_the_law_of_children_that_are_not_there(child, triton_device):
    leaves = narrow(batch=(2,))
    leaves["activation"][:, child] = 0.0
    assert_law(leaves, {}, triton_device, iterations=2, variance_floor=0.05)


def test_flops_are_counted():
    how, options = {"window": SMALL}, {"iterations": 2}
    leaves = {name: x.requires_grad_() for name, x in narrow(**how).items()}
    products = 2 * (3 * 4) * 8 * 3 * 5 * 4
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        pose = routed_by("triton", leaves, how, options, "none").parents.pose
        # Votes are made for each moment, and for distances.
        assert counter.get_total_flops() == (2 + 1 + 2) * products
        pose.sum().backward()
    # Of both moments and of distances: votes again, and gradients of weights and of poses.
    assert counter.get_total_flops() == (5 + 3 + 3 + 3) * products


LARGE = Window((7, 5, 8), (3, 3), (2, 1))


@pytest.mark.gpu
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("window", "compete"), [*SEEN, (LARGE, "window"), (LARGE, "all")], ids=str)
@pytest.mark.parametrize(("pose", "sharing"), KINDS)
@pytest.mark.parametrize(("n_out", "d_in"), [(5, 9), (200, 16)])
def test_the_law_on_a_gpu(n_out, d_in, pose, sharing, window, compete, variant, triton_device):
    how = {"pose": pose, "sharing": sharing, "window": window}
    leaves = narrow("bx", batch=(5,), n_in=24, n_out=n_out, d_in=d_in, **how)
    options = {"variant": variant, "compete": compete, "variance_floor": 0.05}
    assert_law(leaves, how, triton_device, **options)
