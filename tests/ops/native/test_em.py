"""Native EM routing is the plain one of the materialised votes: values, gradients, errors."""

import threading
from itertools import product
from unittest import mock

import pytest
import torch

from ops.fused.em_cases import (
    ODD,
    VARIANTS,
    leaves_of,
    noise_like,
    numbers_of,
    results_of,
    routed_by,
)
from torchcaps.ops import native
from torchcaps.ops.costs import COSTS
from torchcaps.ops.native import em as kernel
from torchcaps.types import Window

LARGE = Window((7, 5, 8), (3, 3), (2, 1))
# Relative to the size of a tensor. The costs are few, and so are the errors that even out in one.
BARS = {"values": 2e-6, "gradients": 2e-5, "beta_a": 1e-4, "beta_u": 1e-4}


@pytest.fixture(autouse=True)
def _library():
    if not native.available():
        pytest.skip("there is no C++ compiler, or TORCHCAPS_NATIVE=0")


def calls(call):
    """How often `call` runs a kernel."""
    run = kernel._run
    with mock.patch.object(kernel, "_run", side_effect=run) as counted:
        call()
    return counted.call_count


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
    mine = in_threads(threads, lambda: parts(results_of("native", leaves, how, options)))
    # What hardly depends on anything has gradients of rounding errors.
    floor = 1e-6 * max(float(x.norm()) for x, _ in exact.values())
    for name, (x, bar) in exact.items():
        found = mine[name][0]
        assert (found.shape, found.dtype) == (x.shape, torch.float32), name
        scale = max(float(x.norm()), floor, 1e-30)
        error, *theirs = (float((y[name][0] - x).norm()) / scale for y in (mine, *others))
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
    for _ in range(6):
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


@pytest.mark.parametrize("layout", ["strided", "expanded"])
@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
def test_children_may_lie_anyhow_in_memory(window, layout):
    how = {"pose": "matrix", "window": window}
    found, drawn = [], narrow(batch=(4,), **how)
    for kind in ("native", "plain"):
        leaves = {name: x.detach().clone() for name, x in drawn.items()}
        made = dict(leaves)
        for name in ("pose", "activation"):
            leaf = leaves[name].requires_grad_()
            strided = leaf.mT.contiguous().mT if leaf.ndim > 2 else leaf.t().contiguous().t()
            made[name] = strided if layout == "strided" else leaf[:1].expand(leaf.shape)
        values = numbers_of(routed_by(kind, made, how, {}))
        sums = sum((x * noise_like(x, seed)).sum() for seed, x in enumerate(values))
        found.append([*values, *torch.autograd.grad(sums, [leaves["pose"], leaves["activation"]])])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
def test_half_precision_is_rounded_once(window, half):
    how = {"pose": "matrix", "window": window}
    leaves = {name: x.to(half) for name, x in leaves_of("b", **how).items()}
    wide = {name: x.float() for name, x in leaves.items()}
    assert calls(lambda: routed_by("native", leaves, how, {})) > 0
    mine, theirs = results_of("native", leaves, how, {}), results_of("plain", wide, how, {})
    for a, b in zip(mine[0], theirs[0], strict=True):
        assert a.dtype == half
        torch.testing.assert_close(a.float(), b, rtol=torch.finfo(half).eps, atol=1e-5)
    for name, gradient in mine[1].items():
        assert gradient.dtype == half
        largest = theirs[1][name].abs().max()
        assert (gradient.float() - theirs[1][name]).abs().max() < 0.03 * largest, name


@pytest.mark.parametrize("names", ["", "b"])
def test_autocast_gives_the_dtype_of_the_plain_op_and_the_numbers_of_float32(names):
    how = {"pose": "matrix", "window": ODD}
    leaves = narrow(names, **how)
    with torch.autocast("cpu", torch.bfloat16):
        mine, plain = (numbers_of(routed_by(x, leaves, how, {})) for x in ("native", "plain"))
    wide = numbers_of(routed_by("native", leaves, how, {}))
    for a, b, exact in zip(mine, plain, wide, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, exact.to(a.dtype))


@pytest.mark.parametrize("name", ["pose", "activation"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
def test_what_is_not_finite_stays_in_its_sample(window, bad, name):
    how = {"pose": "matrix", "window": window}
    leaves = narrow(batch=(5,), **how)
    leaves[name][4, 7 if window else 3] = bad
    found = []
    for kind in ("native", "plain"):
        mine = {key: x.clone().requires_grad_() for key, x in leaves.items()}
        parents = routed_by(kind, mine, how, {}).parents
        of_pose = torch.autograd.grad(sum(x.sum() for x in parents), mine["pose"])[0]
        found.append((*parents, of_pose))
    for mine, theirs in zip(*found, strict=True):
        assert torch.equal(mine.isfinite(), theirs.isfinite())
        assert mine[:4].isfinite().all()
        assert not mine[4].isfinite().all()


def test_two_python_threads_at_once():
    how = {"pose": "matrix", "window": LARGE}
    leaves = narrow("b", batch=(6,), d_in=16, n_out=5, **how)

    def run():
        return [x for x, _ in parts(results_of("native", leaves, how, {})).values()]

    expected, results = run(), []
    threads = [
        threading.Thread(target=lambda: results.extend(run() for _ in range(3))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    for each in results:
        assert all(torch.equal(a, b) for a, b in zip(each, expected, strict=True))


def test_what_they_cost_is_known(monkeypatch):
    """FLOPs of making votes and of their gradients; memory near what a kernel asks for."""
    how = {"pose": "matrix", "window": LARGE}
    leaves = narrow(batch=(7,), d_in=16, n_out=16, **how)
    leaves = {name: x.requires_grad_() for name, x in leaves.items()}
    asked, found, plan = [], [], kernel.library().torchcaps_em_plan
    for operator, name in product((kernel.fit, kernel.assign), ("forward", "backward")):
        called = getattr(operator, name)

        def call(*arguments, called=called):
            asked.append(COSTS[called.overloadpacket](*arguments))
            return called(*arguments)

        monkeypatch.setattr(operator, name, call)

    def planned(job):
        plan(job)
        found.append(4 * job._obj.seen_by.workspace_size)

    monkeypatch.setattr(kernel.library(), "torchcaps_em_plan", planned)
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
