"""Native EM routing is the plain one of the materialised votes: values, gradients, errors."""

from itertools import product
from unittest import mock

import pytest
import torch

from ops.fused.em_cases import (
    ODD,
    VARIANTS,
    leaves_of,
    results_of,
    routed_by,
)
from torchcaps.ops import native
from torchcaps.ops.costs import COSTS
from torchcaps.ops.native import build
from torchcaps.ops.native import em as kernel
from torchcaps.types import Window

LARGE = Window((7, 5, 8), (3, 3), (2, 1))
# Relative to the size of a tensor. The costs are few, and so are the errors that even out in one.
BARS = {"values": 2e-6, "gradients": 2e-5, "beta_a": 1e-4, "beta_u": 1e-4}


@pytest.fixture(autouse=True)
def _library():
    if not native.available():
        pytest.skip("there is no C++ compiler, or TORCHCAPS_NATIVE=0")


def narrow(*arguments, **options):
    return {name: x.float() for name, x in leaves_of(*arguments, **options).items()}


def parts(results):
    """Every tensor by its name, with the bar for it."""
    values, gradients = results
    found = {f"value {n}": (x, BARS["values"]) for n, x in enumerate(values)}
    return found | {name: (x, BARS.get(name, BARS["gradients"])) for name, x in gradients.items()}


def in_threads(count, call):
    """By so many threads of ours: those of PyTorch would wait for each other."""
    with mock.patch.object(torch, "get_num_threads", return_value=count):
        return call()


def assert_law(leaves, how, threads=1, **options):
    """Within the bars of float64. Where single precision does not reach them, about as far from it
    as the plain op or the fused one is: one draw may round well with one of them, and differently
    on every processor. The mean over draws is judged below, against the plain op alone.
    """
    exact = parts(results_of("plain", {x: y.double() for x, y in leaves.items()}, how, options))
    others = [parts(results_of(form, leaves, how, options)) for form in ("plain", "fused")]
    fast = in_threads(threads, lambda: parts(results_of("native", leaves, how, options)))
    # What hardly depends on anything has gradients of rounding errors.
    floor = 1e-6 * max(float(x.norm()) for x, _ in exact.values())
    for name, (x, bar) in exact.items():
        found = fast[name][0]
        assert (found.shape, found.dtype) == (x.shape, torch.float32), name
        scale = max(float(x.norm()), floor, 1e-30)
        error, *theirs = (float((y[name][0] - x).norm()) / scale for y in (fast, *others))
        assert error <= max(bar, 4 * max(theirs)), (name, error, theirs)


def competing(window):
    return ["window"] if window is None else ["window", "all"]


KINDS = [(window, compete) for window in (None, ODD, LARGE) for compete in competing(window)]


@pytest.mark.drawn(3)
@pytest.mark.parametrize("threads", [2, 3, 7])
@pytest.mark.parametrize("window", [None, ODD, LARGE], ids=str)
def test_any_number_of_threads(window, threads):
    """Blocks of lanes end within samples, which several threads then see."""
    how = {"pose": "matrix", "window": window}
    for batch in (1, 5, 37):
        leaves = narrow("x", batch=(batch,), n_in=24, d_in=16, **how)
        assert_law(leaves, how, threads)
        first, second = (
            in_threads(threads, lambda: parts(results_of("native", leaves, how, {})))  # noqa: B023
            for _ in range(2)
        )
        assert all(torch.equal(x, second[name][0]) for name, (x, _) in first.items())


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("compete", ["window", "all"])
def test_the_law_of_large_grids(compete, variant):
    how = {"pose": "matrix", "window": Window((14, 14, 8), (3, 3), (2, 2))}
    leaves = narrow("b", batch=(3,), n_out=16, d_in=16, **how)
    assert_law(leaves, how, variant=variant, compete=compete, iterations=2)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("window", "compete"), KINDS, ids=str)
@pytest.mark.parametrize("pose", ["vector", "matrix"])
def test_errors_are_at_most_twice_those_of_the_plain_op(pose, window, compete, variant):
    """In the mean over samples, however small they are."""
    how, options = {"pose": pose, "window": window}, {"variant": variant, "compete": compete}
    squares = {"native": {}, "plain": {}}
    # One sample whose plain gradients come out right by luck must not decide.
    for _ in range(18):
        leaves = narrow("b", batch=(5,), n_in=72, n_out=10, d_in=16, d_out=16, **how)
        exact = parts(results_of("plain", {x: y.double() for x, y in leaves.items()}, how, options))
        for kind, sums in squares.items():
            for name, (x, _) in parts(results_of(kind, leaves, how, options)).items():
                worse = (x - exact[name][0]).square().sum() / exact[name][0].square().sum()
                name = "beta" if name in ("beta_a", "beta_u") else name
                sums[name] = sums.get(name, 0) + float(worse)
    for name, square in squares["native"].items():
        least = torch.finfo(torch.float32).eps
        assert square**0.5 <= 2 * max(squares["plain"][name] ** 0.5, least), name


@pytest.mark.parametrize("child", [0, slice(None)], ids=["one", "all"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_law_of_children_that_are_not_there(variant, child):
    leaves = narrow()
    leaves["activation"][:, child] = 0.0
    assert_law(leaves, {}, variant=variant)


def test_what_they_cost_is_known(monkeypatch):
    """FLOPs of making votes and of their gradients; memory near what a kernel asks for."""
    how = {"pose": "matrix", "window": LARGE}
    leaves = narrow(batch=(7,), d_in=16, n_out=16, **how)
    leaves = {name: x.requires_grad_() for name, x in leaves.items()}
    asked, found, plan = [], [], build.library().torchcaps_em_plan
    for operator, name in product((kernel.fit, kernel.assign), ("forward", "backward")):
        called = getattr(operator, name)

        def call(*arguments, called=called):
            asked.append(COSTS[called.overloadpacket](*arguments))
            return called(*arguments)

        monkeypatch.setattr(operator, name, call)

    def planned(job):
        plan(job)
        found.append(4 * job._obj.seen_by.workspace_size)

    monkeypatch.setattr(build.library(), "torchcaps_em_plan", planned)
    routed_by("native", leaves, how, {"iterations": 2}).parents.pose.sum().backward()
    votes = 2 * 7 * 9 * 72 * 16 * 16 * 4
    assert [cost.flops // votes for cost in asked] == [2, 1, 2, 3, 3, 3]
    assert all(cost.flops % votes == 0 for cost in asked)
    for cost, real in zip(asked, found, strict=True):
        # It is that of the widest vectors; they may be of four numbers.
        assert 0.6 * real <= cost.workspace <= 7 * real


@pytest.mark.parametrize("way", ["fused", "native"])
@pytest.mark.parametrize(("window", "compete"), [(None, "window"), (ODD, "all")], ids=str)
def test_couplings_of_one_iteration_are_kept(window, compete, way):
    how = {"pose": "matrix", "window": window}
    leaves = {name: x.requires_grad_() for name, x in narrow(batch=(24,), **how).items()}
    couplings = routed_by(way, leaves, how, {"compete": compete}, "last").steps[0].coupling

    def kept(iterations, keep="none"):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x: sizes.append(x.numel()) or x, lambda x: x
        ):
            routed_by(way, leaves, how, {"compete": compete, "iterations": iterations}, keep)
        return sum(size >= couplings.numel() for size in sizes)

    assert 0 < kept(3) == kept(7)
    assert kept(3) < kept(7, "steps")
