"""Native inverted routing is the plain one of the materialised votes: values, gradients, errors."""

from unittest import mock

import pytest
import torch

from ops.fused.inverted_cases import ODD, leaves_of, results_of, routed_by, vote_map_of
from torchcaps.ops import native
from torchcaps.ops.costs import COSTS
from torchcaps.ops.native import mixing as kernel
from torchcaps.types import Window

LARGE = Window((7, 5, 8), (3, 3), (2, 1))


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


def in_threads(count, call):
    """By so many threads of ours: those of PyTorch would wait for each other."""
    with mock.patch.object(torch, "get_num_threads", return_value=count):
        return call()


def assert_law(leaves, how, threads=1, **options):
    """Within 2e-6 of values and 2e-5 of gradients in float64; where single precision does not reach
    them, about as far from it as the plain op or the fused one is."""
    wide = {name: x.double() for name, x in leaves.items()}
    values, gradients = results_of("plain", wide, how, options)
    others = [results_of(form, leaves, how, options) for form in ("plain", "fused")]
    mine = in_threads(threads, lambda: results_of("native", leaves, how, options))
    pairs = [
        (f"value {n}", x, 2e-6, [y[0][n] for y in (mine, *others)]) for n, x in enumerate(values)
    ]
    pairs += [(n, x, 2e-5, [y[1][n] for y in (mine, *others)]) for n, x in gradients.items()]
    # What hardly depends on anything has gradients of rounding errors.
    floor = 1e-6 * max((float(x.norm()) for _, x, _, _ in pairs if x is not None), default=0.0)
    for name, x, bar, found in pairs:
        if x is None:
            assert found[0] is None, name
            continue
        assert (found[0].shape, found[0].dtype) == (x.shape, torch.float32), name
        scale = max(float(x.norm()), floor, 1e-30)
        error, *theirs = (float((y - x).norm()) / scale for y in found)
        assert error <= max(bar, 4 * max(theirs)), (name, error, theirs)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("threads", [2, 3, 7])
@pytest.mark.parametrize("window", [None, ODD, LARGE], ids=str)
def test_any_number_of_threads(window, threads):
    """Blocks of lanes end within samples, which several threads then see."""
    how = {"pose": "matrix", "window": window}
    for batch in (1, 5, 37):
        leaves = narrow("xn", batch=(batch,), n_in=24, d_in=16, **how)
        assert_law(leaves, how, threads)
        first, second = (
            in_threads(threads, lambda: results_of("native", leaves, how, {}))  # noqa: B023
            for _ in range(2)
        )
        assert all(torch.equal(a, b) for a, b in zip(first[0], second[0], strict=True))
        assert all(torch.equal(first[1][name], x) for name, x in second[1].items())


@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
def test_keep_changes_no_bit_and_routing_is_its_steps(window):
    how = {"pose": "matrix", "window": window}
    leaves = narrow("xns", **how)
    kept = {
        keep: routed_by("native", leaves, how, {"iterations": 3}, keep)
        for keep in ("none", "last", "steps")
    }
    for routed in kept.values():
        assert torch.equal(routed.parents.pose, kept["none"].parents.pose)
    norm = (leaves["norm_weight"], leaves["norm_bias"])
    parents = leaves["start"]
    for step in kept["steps"].steps:
        again = native.inverted_step(vote_map_of(leaves, **how), parents, norm=norm, keep="last")
        assert torch.equal(again.coupling, step.coupling)
        parents = again.parents.pose
        assert torch.equal(parents, step.parents.pose)


def test_a_kernel_routes_all_but_the_first_iteration():
    how = {"pose": "matrix", "window": ODD}
    assert calls(lambda: routed_by("native", narrow("xn", **how), how, {"iterations": 3})) == 2
    assert calls(lambda: results_of("native", narrow("xns", **how), how, {"iterations": 2})) == 4


def test_what_they_cost_is_known(monkeypatch):
    """FLOPs of making votes and of their gradients; memory near what a kernel asks for."""
    how = {"pose": "matrix", "window": LARGE}
    leaves = narrow("n", batch=(7,), d_in=16, n_out=16, **how)
    leaves = {name: x.requires_grad_() for name, x in leaves.items()}
    asked, found, plan = [], [], kernel.library().torchcaps_mixing_plan
    for name in ("forward", "backward"):
        operator = getattr(kernel.by_kernel, name)

        def call(*arguments, operator=operator):
            asked.append(COSTS[operator.overloadpacket](*arguments))
            return operator(*arguments)

        monkeypatch.setattr(kernel.by_kernel, name, call)

    def planned(job, backward):
        plan(job, backward)
        found.append(4 * job._obj.seen_by.workspace_size)

    monkeypatch.setattr(kernel.library(), "torchcaps_mixing_plan", planned)
    routed_by("native", leaves, how, {"iterations": 2}, "none").parents.pose.sum().backward()
    votes = 2 * 7 * 9 * 72 * 16 * 16 * 4
    # Their sum, then votes twice, and an agreement is a quarter of a vote of 4 × 4 matrices. Back,
    # the sum has two gradients.
    assert [cost.flops / votes for cost in asked] == [1 + 2.5, 5.25 + 2]
    for cost, real in zip(asked, found, strict=True):
        # It is that of the widest vectors; they may be of four numbers.
        assert 0.6 * real <= cost.workspace <= 7 * real
