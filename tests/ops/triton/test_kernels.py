"""Which kernels a routing starts, at ragged sizes, under autocast and for GPUs that are absent.

The interpreter takes a millisecond for a line of a kernel: sizes are tiny, and constants are
changed so that they still make several tiles and splits.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from contracts.form_laws import assert_law, cut
from contracts.forms import Case, leaves_of, route
from torchcaps.ops.fused.em import Shared
from torchcaps.ops.fused.tiles import MadeOf
from torchcaps.ops.triton import em

slow = pytest.mark.slow
TWICE = {"iterations": 2}
FIT, SLOPES = ["moments", "moments"], ["slopes"]


@pytest.mark.parametrize(
    ("case", "whole", "tiled"),
    [
        (Case("dynamic", options=TWICE, n_out=9), ["mix"] * 2, ["mix", "normalise", "mix"]),
        (Case("self_attention", n_out=9), ["mix"] * 2, ["mix", "normalise", "mix"]),
        (
            Case("inverted", given=("start",), options={"iterations": 1}, n_out=9),
            ["mix"],
            ["normalise", "mix"],
        ),
        (
            Case("em", options=TWICE | {"variance_floor": 0.05}, n_in=2, n_out=9),
            # Votes are made anew for every moment.
            [*FIT, *SLOPES, *FIT],
            [*FIT, *SLOPES * 5, *FIT],
        ),
    ],
    ids=lambda x: x.algorithm if isinstance(x, Case) else "",
)
def test_many_parents_are_gone_over_twice(case, whole, tiled, launches, monkeypatch):
    leaves = leaves_of(case, torch.float32)
    for how, expected in (("whole", whole), ("tiled", tiled)):
        cut(monkeypatch, "triton", how)
        assert launches(lambda: route("triton", case, leaves, "none")) == expected


def sized(sizes, **options):
    batch, n_in, n_out, d_in, d_out = sizes
    rest = {"n_in": n_in, "n_out": n_out, "d_in": d_in, "d_out": d_out, "batch": (batch,)}
    return Case("dynamic", options=TWICE | options, **rest)


SIZES = [
    *((batch, 3, 5, 4, 3) for batch in (1, 15, 16, 17, 33)),
    *((2, 3, 5, d_in, d_out) for d_in in (3, 24) for d_out in (3, 17)),
    *((2, 3, n_out, 8, 4) for n_out in (1, 2, 9)),
    *((2, n_in, 4, 4, 8) for n_in in (1, 2, 5)),
    (1, 1, 1, 1, 1),
]


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("sizes", "how"),
    [
        ((17, 3, 5, 4, 3), "whole"),
        ((1, 1, 1, 1, 1), "whole"),
        ((2, 3, 9, 8, 4), "tiled"),
        ((2, 3, 5, 24, 17), "tiled"),
        ((2, 5, 4, 4, 8), "tiled"),
        *(pytest.param(sizes, how, marks=slow) for sizes in SIZES for how in ("whole", "tiled")),
    ],
    ids=str,
)
def test_ragged_sizes(sizes, how, monkeypatch):
    cut(monkeypatch, "triton", how)
    case = sized(sizes)
    assert_law("triton", case, leaves_of(case, torch.float32))


def test_autocast_rounds_poses_and_weights_to_the_nearest_and_nothing_else():
    case = Case("self_attention", given=("prior",))
    leaves = leaves_of(case, torch.float32)
    near = {name: leaves[name].bfloat16().float() for name in ("pose", "weight")}
    exact = route("triton", case, leaves | near)
    with torch.autocast("cpu", torch.bfloat16):
        found = route("triton", case, leaves)
    assert torch.equal(found.parents.pose, exact.parents.pose.bfloat16())


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
