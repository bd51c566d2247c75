"""Inverted routing by Triton is the plain one of the materialised votes: values, gradients, errors.

The interpreter takes a millisecond for a line of a kernel: sizes are tiny, and constants are
changed so that they still make several tiles and splits.
"""

import math
import re

import pytest
import torch

from ops.fused.inverted_cases import (
    ODD,
    WINDOWS,
    leaves_of,
    results_of,
    routed_by,
    slots_of,
    vote_map_of,
)
from torchcaps.errors import TorchcapsError
from torchcaps.layers import ConvCapsules, InvertedRouting, use_backend
from torchcaps.ops import triton
from torchcaps.ops.triton import mixing, votes
from torchcaps.types import Capsules, Window

WHOLE, TILED = 4096, 256  # all parents in one tile; a few of them
SMALL = Window((3, 3, 2), (2, 2), (1, 1))
slow = pytest.mark.slow


def tell(monkeypatch, tile=WHOLE):
    monkeypatch.setattr(votes, "TILE", tile)
    monkeypatch.setattr(votes, "CHILDREN", 2)


def narrow(*arguments, **options):
    return {name: x.float() for name, x in leaves_of(*arguments, **options).items()}


def far_off(found, exact):
    """The largest error relative to the largest number."""
    if not exact.numel():
        return 0.0
    return float((found.double() - exact).abs().max() / exact.abs().max().clamp(min=1e-30))


def assert_law(leaves, how, device, **options):
    """Of the plain op in float64; the largest error, relative to the largest number of a tensor.

    LayerNorm of nearly equal numbers enlarges the last bits of any way to compute them: values may
    be as far off as the plain op's in single precision are at their worst.
    """
    exact = {name: x.double() for name, x in leaves.items()}
    values, gradients = results_of("plain", exact, how, options)
    plain, _ = results_of("plain", leaves, how, options)
    theirs = max((far_off(*both) for both in zip(plain, values, strict=True)), default=0.0)
    here = {name: x.to(device) for name, x in leaves.items()}
    found, of_leaves = results_of("triton", here, how, options)
    bar = max(2e-6, theirs)
    pairs = [(f"value {n}", bar, *both) for n, both in enumerate(zip(found, values, strict=True))]
    pairs += [(name, 2e-5, of_leaves[name], x) for name, x in gradients.items()]
    largest = max(float(x.abs().max()) for x in gradients.values() if x is not None and x.numel())
    for name, bar, mine, x in pairs:
        if x is None:
            assert mine is None, name
            continue
        assert (mine.shape, mine.dtype) == (x.shape, torch.float32), name
        if not x.numel():
            continue
        scale = float(x.abs().max())
        # What is zero in exact numbers has errors of the others.
        scale = scale if scale > 1e-6 * largest else largest
        error = float((mine.cpu().double() - x).abs().max())
        assert error <= bar * max(scale, 1e-30), (name, error / max(scale, 1e-30))


KINDS = [(pose, sharing) for pose in ("vector", "matrix") for sharing in ("none", "type", "all")]


@pytest.mark.parametrize("window", [None, SMALL], ids=["dense", "window"])
def test_keep_changes_no_bit_and_routing_is_its_steps(window):
    how = {"window": window}
    leaves = narrow("xns", batch=(2,), **how)
    kept = {keep: routed_by("triton", leaves, how, {}, keep) for keep in ("none", "last", "steps")}
    for routed in kept.values():
        assert torch.equal(routed.parents.pose, kept["none"].parents.pose)
    norm, parents = (leaves["norm_weight"], leaves["norm_bias"]), leaves["start"]
    for step in kept["steps"].steps:
        again = triton.inverted_step(vote_map_of(leaves, **how), parents, norm=norm, keep="last")
        assert torch.equal(again.coupling, step.coupling)
        parents = again.parents.pose
        assert torch.equal(parents, step.parents.pose)


@pytest.mark.parametrize("half", [pytest.param(torch.float16, marks=slow), torch.bfloat16], ids=str)
def test_half_precision_is_rounded_once(half):
    how = {"pose": "matrix", "window": SMALL}
    leaves = {name: x.to(half) for name, x in leaves_of("xn", batch=(1,), **how).items()}
    wide = {name: x.float() for name, x in leaves.items()}
    mine, theirs = results_of("triton", leaves, how, {}), results_of("triton", wide, how, {})
    for a, b in zip(mine[0], theirs[0], strict=True):
        assert torch.equal(a, b.to(half))
    for name, gradient in mine[1].items():
        assert gradient.dtype == half
        torch.testing.assert_close(gradient.float(), theirs[1][name], rtol=0.05, atol=0.05)


def test_many_parents_are_gone_over_twice(launches, monkeypatch):
    leaves = narrow("s", n_out=9)
    route = lambda: routed_by("triton", leaves, {}, {"iterations": 1}, "none")  # noqa: E731
    assert launches(route) == ["mix"]
    tell(monkeypatch, TILED)
    assert launches(route) == ["normalise", "mix"]


def test_what_a_kernel_lacks_goes_the_fused_way(launches):
    wide, huge = leaves_of("bn"), narrow(batch=(1,), n_in=1, n_out=1, d_in=128, d_out=128)
    found = []
    assert not launches(lambda: found.append(routed_by("triton", wide, {}, {}).parents.pose))
    assert torch.equal(found[0], routed_by("fused", wide, {}, {}).parents.pose)
    for leaves in (huge, {name: x.to("meta") for name, x in narrow().items()}):
        assert not launches(lambda leaves=leaves: routed_by("triton", leaves, {}, {}))


def test_float64_is_as_exact_as_the_plain_op():
    leaves = leaves_of("bxns", pose="matrix", window=ODD)
    how = {"pose": "matrix", "window": ODD}
    mine, plain = results_of("triton", leaves, how, {}), results_of("plain", leaves, how, {})
    torch.testing.assert_close(mine, plain, rtol=1e-10, atol=1e-10)


def test_layers_choose_it(launches):
    options = {"kernel": 2, "pose": "matrix", "routing": InvertedRouting(iterations=2)}
    layer = ConvCapsules(child_grid=SMALL.child_grid, d_in=4, types=3, d_out=4, **options)
    children, found = Capsules(torch.randn(2, 18, 4)), []
    for backend, expected in (("triton", ["mix", "mix"]), ("plain", [])):
        use_backend(layer, backend)
        assert launches(lambda: found.append(layer(children).parents.pose)) == expected
    assert (found[0] - found[1]).abs().max() <= 2e-6 * found[1].abs().max()


def test_what_is_not_finite_does_not_become_a_number():
    for value in (float("nan"), float("inf")):
        leaves = narrow("n")
        leaves["pose"][1, 2, 0] = value
        pose = routed_by("triton", leaves, {}, {}).parents.pose
        assert not pose[1].isfinite().all()
        assert pose[[0, 2]].isfinite().all()


@pytest.mark.parametrize(("tile", "made"), [(WHOLE, 1), (TILED, 2)], ids=["whole", "tiled"])
def test_flops_are_counted(tile, made, monkeypatch):
    tell(monkeypatch, tile)
    leaves = {name: x.requires_grad_() for name, x in narrow("n", n_out=9, window=SMALL).items()}
    agreement = 2 * (3 * 4) * slots_of(SMALL) * 9 * 5
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        pose = routed_by("triton", leaves, {"window": SMALL}, {}, "none").parents.pose
        # All votes once; an iteration with agreements and a sum.
        forward = agreement * 4 + made * agreement * 4 + (1 + made) * agreement
        assert counter.get_total_flops() == forward
        pose.sum().backward()
    assert counter.get_total_flops() > 2 * forward


@pytest.mark.parametrize("window", [[], [3, 3, 2, 2, 2, 1, 1]], ids=["dense", "window"])
def test_operators_are_what_torch_expects(window):
    looks = SMALL if window else None
    leaves = narrow("bxs", batch=(2,), n_in=3, window=looks)
    parents = leaves["start"].expand(2, 4 if window else 1, -1, -1).contiguous()
    given = (*(leaves[x] for x in ("pose", "weight", "bias", "coordinates")), parents)
    *votes_of, parents = (x.clone().requires_grad_() for x in given)
    made_of = (*votes_of, "none", "vector", window, torch.float32)
    loop = ("present", "none", False, 0.5, 1, 0.2, False, "none", 1)
    torch.library.opcheck(
        mixing.by_kernels.forward,
        (*made_of, None, None, parents, None, None, *loop),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )


def test_one_graph_compiles():
    torch._dynamo.reset()
    how = {"window": SMALL}
    leaves = {name: x.requires_grad_() for name, x in narrow("xns", batch=(1,), **how).items()}

    def pose(*given):
        given = dict(zip(leaves, given, strict=True))
        return routed_by("triton", given, how, {}, "none").parents.pose

    compiled = torch.compile(pose, backend="aot_eager", fullgraph=True)
    found = []
    for op in (compiled, pose):
        made = op(*leaves.values())
        found.append((made, *torch.autograd.grad(made.square().sum(), leaves.values())))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_second_derivatives_are_refused():
    leaves = {name: x.requires_grad_() for name, x in narrow("s", n_in=2).items()}
    pose = routed_by("triton", leaves, {}, {"iterations": 1}).parents.pose
    (gradient,) = torch.autograd.grad(pose.square().sum(), leaves["pose"], create_graph=True)
    words = (
        "by create_graph=True, route ops.materialise(vote_map) with the routing of torchcaps.ops"
    )
    with pytest.raises(TorchcapsError, match=re.escape(words)):
        gradient.sum().backward()


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, {"iterations": 0}),
        ({"norm_weight": torch.ones(3)}, {}),
        ({"start": torch.ones(2, 7)}, {}),
        ({"weight": torch.ones(5, 3, 2, 2)}, {}),
    ],
    ids=lambda x: str(x)[:30],
)
def test_what_the_plain_op_refuses_is_refused_in_its_words(given, options):
    how = {"pose": "matrix", "window": ODD}
    leaves = narrow("ns", **how) | given
    with pytest.raises(TorchcapsError) as theirs:
        routed_by("plain", leaves, how, options)
    with pytest.raises(TorchcapsError, match=re.escape(str(theirs.value))):
        routed_by("triton", leaves, how, options)


LARGE = Window((7, 5, 8), (3, 3), (2, 1))


@pytest.mark.gpu
@pytest.mark.parametrize("window", [*WINDOWS, LARGE], ids=str)
@pytest.mark.parametrize(("pose", "sharing"), KINDS)
@pytest.mark.parametrize(("n_out", "d_in"), [(5, 9), (200, 16)])
def test_the_law_on_a_gpu(n_out, d_in, pose, sharing, window, triton_device):
    how = {"pose": pose, "sharing": sharing, "window": window}
    leaves = narrow("bxns", batch=(5,), n_out=n_out, d_in=d_in, **how)
    scale = 1 / math.sqrt(d_in)
    assert_law(leaves, how, triton_device, iterations=3, scale=scale)
