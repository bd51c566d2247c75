"""Dynamic routing by Triton is the plain one of the materialised votes: values, gradients, errors.

The interpreter takes a millisecond for a line of a kernel: sizes are tiny, and constants are
changed so that they still make several tiles and splits.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ops.fused.vote_maps import KINDS, both, leaves, named
from ops.fused.vote_maps import vote_map as map_of
from torchcaps.ops import dynamic_routing as plain
from torchcaps.ops import materialise, triton
from torchcaps.ops.triton import votes

DENSE = ("none", "vector", None)
NO_WINDOW = [kind for kind in KINDS if kind[2] is None]
ALL = ("vote_bias", "coordinates", "bias", "prior")
WHOLE, TILED = 4096, 256  # all parents in one tile of sixteen lanes; four by four components


def tell(monkeypatch, tile=WHOLE, children=2):
    monkeypatch.setattr(votes, "TILE", tile)
    monkeypatch.setattr(votes, "CHILDREN", children)


def made(*, batch, n_in, n_out, d_in, d_out):
    return {
        "pose": torch.randn(batch, n_in, d_in) / d_in**0.5,
        "weight": torch.randn(n_in, n_out, d_out, d_in) * 0.3,
    }


def small(kind, **options):
    """Six children, three types of them."""
    found = leaves(kind, n_in=6, dtype=torch.float32, **options)
    return {name: x * 0.5 for name, x in found.items()}


def errors(kind, found, device, **options):
    """Against the plain op in float64: the largest error of values and of each gradient, relative
    to the largest number of its tensor."""
    exact = {name: x.double() for name, x in found.items()}
    expected, theirs = next(both(plain, plain, kind, exact, **options))
    here = {name: x.to(device) for name, x in found.items()}
    *_, (result, fast) = both(plain, triton.dynamic_routing, kind, here, **options)
    pairs = {"values": (result, expected)} | {n: (fast[n], theirs[n]) for n in fast}
    largest = max(float(x.abs().max()) for x in theirs.values())
    found = {}
    for name, (a, b) in pairs.items():
        assert a.shape == b.shape
        scale = float(b.abs().max())
        # Under some detach a gradient is zero in exact numbers.
        scale = scale if scale > 1e-6 * largest else max(largest, 1e-30)
        found[name] = float((a.cpu().double() - b).abs().max()) / scale if a.numel() else 0.0
    return found


def assert_law(kind, found, device, values=2e-6, gradients=2e-5, **options):
    for name, error in errors(kind, found, device, **options).items():
        assert error <= (values if name == "values" else gradients), (name, error)


OPTIONS = {
    **{
        f"{detach}-{t}": {"iterations": t, "detach": detach}
        for detach in ("none", "votes", "states", "coupling")
        for t in (1, 2, 3)
    },
    "exp": {"iterations": 2, "squash": "exp"},
    "linear": {"iterations": 2, "squash": "none"},
    "leaky": {"iterations": 2, "leaky": True},
    "leaky-1": {"iterations": 1, "leaky": True},
    "odd-bias": {"iterations": 2, "odd_bias": True},
}
EVERY_OPTION = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
TILES = pytest.mark.parametrize("tile", [WHOLE, TILED], ids=["whole", "tiled"])
slow = pytest.mark.slow


SIZES = [
    *((batch, 3, 5, 4, 3) for batch in (1, 15, 16, 17, 33)),
    *((2, 3, 5, d_in, d_out) for d_in in (3, 24) for d_out in (3, 17)),
    *((2, 3, n_out, 8, 4) for n_out in (1, 2, 9)),
    *((2, n_in, 4, 4, 8) for n_in in (1, 2, 5)),
    (1, 1, 1, 1, 1),
]


def assert_size(sizes, detach, device):
    names = ("batch", "n_in", "n_out", "d_in", "d_out")
    found = made(**dict(zip(names, sizes, strict=True)))
    assert_law(DENSE, found, device, detach=detach, iterations=2, keep="last")


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((17, 3, 5, 4, 3), WHOLE),
        ((1, 1, 1, 1, 1), WHOLE),
        ((2, 3, 9, 8, 4), TILED),
        ((2, 3, 5, 24, 17), TILED),
        ((2, 5, 4, 4, 8), TILED),
        *(pytest.param(sizes, tile, marks=slow) for sizes in SIZES for tile in (WHOLE, TILED)),
    ],
    ids=str,
)
def test_ragged_sizes(sizes, tile, monkeypatch, triton_device):
    tell(monkeypatch, tile)
    assert_size(sizes, "none", triton_device)


def assert_half_precision(kind, dtype, device):
    found = {name: x.to(dtype) for name, x in small(kind, parameters=ALL).items()}
    results = []
    for each in (found, {name: x.float() for name, x in found.items()}):
        leaves = {name: x.to(device, copy=True).requires_grad_() for name, x in each.items()}
        rest = {"bias": leaves["bias"], "prior": leaves["prior"], "iterations": 2}
        routed = triton.dynamic_routing(map_of(kind, leaves), keep="last", **rest)
        values = (routed.parents.pose, routed.steps[0].coupling)
        gradients = torch.autograd.grad(routed.parents.pose.float().sum(), leaves.values())
        results.append((*values, *gradients))
    for half, wide in zip(*results, strict=True):
        assert half.dtype == dtype
        # Gradients of parents and of votes are rounded on their way.
        torch.testing.assert_close(half.float(), wide, rtol=0.02, atol=0.02)
    return results


@slow
@TILES
@pytest.mark.parametrize("name", ["pose", "weight", "bias", "prior"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")], ids=str)
@pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")
def test_what_is_not_finite_is_seen_where_the_plain_op_sees_it(name, bad, tile, monkeypatch):
    tell(monkeypatch, tile)
    found = small(DENSE, parameters=("bias", "prior"), lead=(17,))
    found[name].view(-1)[3] = bad
    results = []
    for op in (lambda vm, **rest: plain(materialise(vm), **rest), triton.dynamic_routing):
        leaves = {key: x.clone().requires_grad_() for key, x in found.items()}
        rest = {"bias": leaves["bias"], "prior": leaves["prior"], "keep": "last", "iterations": 2}
        routed = op(map_of(DENSE, leaves), **rest)
        gradients = torch.autograd.grad(routed.parents.pose.sum(), leaves.values())
        results.append((routed.parents.pose, routed.steps[0].coupling, *gradients))
    for theirs, ours in zip(*results, strict=True):
        assert torch.equal(theirs.isfinite(), ours.isfinite())


@pytest.mark.parametrize("tile", [WHOLE, TILED])
def test_a_prior_of_minus_infinity_closes_a_way(tile, monkeypatch):
    tell(monkeypatch, tile)
    found = small(DENSE, parameters=("prior",))
    found["prior"][:, 0] = found["prior"][:, 2] = -float("inf")
    routed = triton.dynamic_routing(map_of(DENSE, found), prior=found["prior"], keep="last")
    coupling = routed.steps[0].coupling
    assert (coupling[..., 2] == 0).all()
    torch.testing.assert_close(coupling.sum(-1), torch.ones(2, 6))


def test_many_parents_are_gone_over_twice(launches, monkeypatch):
    found = small(DENSE)

    def route():
        triton.dynamic_routing(map_of(DENSE, found), iterations=2)

    assert launches(route) == ["mix", "mix"]
    tell(monkeypatch, TILED)
    assert launches(route) == ["mix", "normalise", "mix"]


@pytest.mark.parametrize("tile", [WHOLE, TILED], ids=["whole", "tiled"])
def test_flops_are_those_of_the_algorithm(tile, monkeypatch):
    tell(monkeypatch, tile)
    batch, n_in, n_out, d_in, d_out = 2, 3, 5, 8, 4
    found = made(batch=batch, n_in=n_in, n_out=n_out, d_in=d_in, d_out=d_out)
    found = {name: x.requires_grad_() for name, x in found.items()}
    agreement = 2 * batch * n_in * n_out * d_out
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        parents = triton.dynamic_routing(map_of(DENSE, found), iterations=2).parents.pose
        # Votes twice; one iteration with an agreement and a sum. That parents in two tiles are gone
        # over twice is not counted.
        forward = 2 * agreement * d_in + 2 * agreement
        assert counter.get_total_flops() == forward
        parents.sum().backward()
    assert counter.get_total_flops() > 2 * forward


def route(pose, weight, bias):
    found = {"pose": pose, "weight": weight}
    routed = triton.dynamic_routing(map_of(DENSE, found), bias=bias, keep="last", iterations=2)
    return routed.parents.pose, routed.steps[0].coupling


@slow
@pytest.mark.parametrize("architecture", [80, 90])
def test_gpus_that_are_not_here_would_take_the_kernels(architecture):
    """The interpreter runs what no compiler takes, and says nothing about registers."""
    script = Path(__file__).with_name("compile_ahead.py")
    done = subprocess.run(
        [sys.executable, str(script), str(architecture)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    compiled = [line.split() for line in done.stdout.splitlines()]
    names = {"mix", "normalise", "differentiate"}
    assert {name for name, _ in compiled} == names | {"moments", "slopes"}
    assert max(int(spilled) for _, spilled in compiled) <= 256, done.stdout


@pytest.mark.gpu
@EVERY_OPTION
@pytest.mark.parametrize(("parameters", "keep"), [((), "steps"), (ALL, "none"), (ALL, "steps")])
@pytest.mark.parametrize("kind", NO_WINDOW, ids=named)
def test_the_law_on_a_gpu(kind, parameters, keep, options, triton_device):
    found = leaves(kind, dtype=torch.float32, parameters=parameters)
    found = {name: x * 0.5 for name, x in found.items()}
    assert_law(kind, found, triton_device, keep=keep, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("detach", ["none", "votes"])
@pytest.mark.parametrize(
    "sizes",
    [*SIZES, (128, 1152, 10, 8, 16), (6, 300, 200, 8, 16), (4, 64, 32, 16, 64), (70, 40, 9, 4, 4)],
    ids=str,
)
def test_sizes_on_a_gpu(sizes, detach, triton_device):
    assert_size(sizes, detach, triton_device)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", NO_WINDOW, ids=named)
def test_half_precision_on_a_gpu(kind, dtype, triton_device):
    assert_half_precision(kind, dtype, triton_device)
