"""What the native operators cost, beside what they do and ask for."""

from itertools import product

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from contracts.forms import LARGE, Case, leaves_of, route
from torchcaps.ops.costs import COSTS
from torchcaps.ops.native import build, distance, dynamic, em

pytestmark = pytest.mark.usefixtures("kernels")
OPERATORS = {"dynamic": [dynamic.mixed], "distance": [distance.measured], "em": [em.fit, em.assign]}
B, N_IN, N_OUT, D_IN, D_OUT = 2, 6, 5, 8, 4
TINY = {"batch": (B,), "n_in": N_IN, "n_out": N_OUT, "d_in": D_IN, "d_out": D_OUT}


def narrow(case):
    return {name: x.requires_grad_() for name, x in leaves_of(case, torch.float32).items()}


@pytest.mark.parametrize(
    ("algorithm", "options", "forward", "backward"),
    [
        # Votes three times; two iterations with an agreement and a sum.
        ("dynamic", {"iterations": 3}, 3 * D_IN + 4, None),
        # Votes are made five times, mixed three times, and twice more for what the rate is owed.
        # Back through two iterations; couplings and gradients of three.
        ("distance", {}, 5 * D_IN + 3 + 2, 2 * (D_IN + 1) + 4 * D_IN + 3 + 2),
        # Couplings and gradients of the last iteration.
        ("distance", {"detach": "votes"}, 5 * D_IN + 3 + 2, 4 * D_IN + 1),
        # Who gives the mean distances has no need of measuring.
        ("distance", {"scale": "given"}, 3 * D_IN + 3, None),
    ],
)
def test_flops_are_counted(algorithm, options, forward, backward):
    case = Case(algorithm, options=options, **TINY)
    leaves, unit = narrow(case), 2 * B * N_IN * N_OUT * D_OUT
    if options.get("scale") == "given":  # and owes nothing to it
        leaves = {name: x.detach() for name, x in leaves.items()}
    with FlopCounterMode(display=False) as counter:
        pose = route("native", case, leaves, "none").parents.pose
    assert counter.get_total_flops() == forward * unit
    if backward is not None:
        with FlopCounterMode(display=False) as counter:
            pose.sum().backward()
        assert counter.get_total_flops() == backward * unit


@pytest.mark.parametrize(
    ("given", "backward"),
    # A bias is owed something by the iterations before: two to go back through, three to sum.
    [((), 2 * D_IN + 1), (("bias",), 2 * (D_IN + 3) + 3 * D_IN + 9)],
)
def test_flops_of_gradients_that_stop_at_votes(given, backward):
    case = Case("dynamic", given=given, options={"detach": "votes"}, **TINY)
    pose = route("native", case, narrow(case), "none").parents.pose
    with FlopCounterMode(display=False) as counter:
        pose.sum().backward()
    assert counter.get_total_flops() == backward * 2 * B * N_IN * N_OUT * D_OUT


def costs_of(case, monkeypatch):
    """Of every call in a training step: its cost, and the bytes that the kernel asks for."""
    asked, found, told = [], [], f"torchcaps_{case.algorithm}_plan"
    plan = getattr(build.library(), told)

    def counted(called):
        def call(*arguments):
            asked.append(COSTS[called.overloadpacket](*arguments))
            return called(*arguments)

        return call

    for operator, name in product(OPERATORS[case.algorithm], ("forward", "backward")):
        monkeypatch.setattr(operator, name, counted(getattr(operator, name)))

    def planned(job, *rest):
        plan(job, *rest)
        found.append(4 * job._obj.workspace_size)

    monkeypatch.setattr(build.library(), told, planned)
    route("native", case, narrow(case), "none").parents.pose.sum().backward()
    return list(zip(asked, found, strict=True))


def dense(algorithm, *sizes):
    batch, n_in, n_out, d_in, d_out = sizes
    return Case(algorithm, batch=(batch,), n_in=n_in, n_out=n_out, d_in=d_in, d_out=d_out)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "sizes", [(128, 1152, 10, 8, 16), (128, 64, 196, 8, 16), (640, 64, 10, 16, 5)]
)
def test_a_workspace_of_dynamic_routing(sizes, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    costs = costs_of(dense("dynamic", *sizes), monkeypatch)
    assert len(costs) == 2
    for cost, real in costs:
        # What a thread keeps of a few children is told by nobody.
        assert 0.6 * real - 1.5e6 * threads <= cost.workspace <= 1.6 * real


def test_a_workspace_of_distance_routing(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    costs = costs_of(dense("distance", 128, 1152, 10, 8, 16), monkeypatch)
    assert len(costs) == 2
    for cost, real in costs:
        assert 0.6 * real <= cost.workspace <= 1.6 * real
        # A tenth of one number for each child and parent would be as much again.
        assert real < 8e6


def test_the_costs_of_em_routing(monkeypatch):
    """FLOPs of making votes and of their gradients; memory near what a kernel asks for."""
    sizes = {"batch": (7,), "d_in": 16, "n_out": 16}
    case = Case("em", "none", "matrix", LARGE, options={"iterations": 2}, **sizes)
    costs, votes = costs_of(case, monkeypatch), 2 * 7 * 9 * 72 * 16 * 16 * 4
    assert [cost.flops / votes for cost, _ in costs] == [2, 1, 2, 3, 3, 3]
    for cost, real in costs:
        # It is that of the widest vectors; they may be of four numbers.
        assert 0.6 * real <= cost.workspace <= 7 * real
