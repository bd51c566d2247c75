"""EM routing from a vote map: what it makes of the votes, which it never stores, is what the plain
op makes of them, in values and gradients."""

import math
import re
from typing import ClassVar

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ops.fused.em_cases import (
    ODD,
    VARIANTS,
    WINDOWS,
    error,
    leaves_of,
    noise_like,
    numbers_of,
    results_of,
    routed_by,
)
from torchcaps.errors import TorchcapsError
from torchcaps.ops.fused import em as module
from torchcaps.ops.fused import tiles
from torchcaps.ops.fused.em import em_routing
from torchcaps.types import Capsules, VoteMap, Window


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


@pytest.mark.drawn(5)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("sharing", ["none", "type", "all"])
@pytest.mark.parametrize("pose", ["vector", "matrix"])
def test_the_law(pose, sharing, window, variant, tile, device, dtype):
    how = {"pose": pose, "sharing": sharing, "window": window}
    assert_law(leaves_of("bx", **how), how, device, dtype, variant=variant)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("window", WINDOWS[1:], ids=str)
@pytest.mark.parametrize("iterations", [1, 3])
def test_the_law_where_windows_compete(iterations, window, variant, tile, device, dtype):
    how = {"pose": "matrix", "sharing": "type", "window": window}
    options = {"compete": "all", "variant": variant, "iterations": iterations}
    assert_law(leaves_of("b", **how), how, device, dtype, **options)


OPTIONS = [
    {"iterations": 1},
    {"iterations": 2},
    {"iterations": 5},
    {"variance_floor": 0.1},
    {"lambda_": 0.0},
    {"lambda_": 2.0},
    {"lambda_": 0.1, "lambda_schedule": "constant"},
]


@pytest.mark.slow
@pytest.mark.parametrize("names", ["", "b", "x"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
def test_the_law_with_every_option(window, variant, options, names, device, dtype):
    how = {"pose": "matrix", "window": window}
    assert_law(leaves_of(names, **how), how, device, dtype, variant=variant, **options)


SHAPES = [
    {"batch": ()},
    {"batch": (1,)},
    {"batch": (2, 1, 3)},
    {"batch": (0,)},
    {"batch": (2, 0)},
    {"n_in": 1},
    {"n_out": 1},
    {"n_in": 1, "n_out": 1, "d_in": 1, "d_out": 1},
    {"n_in": 7, "n_out": 11, "d_in": 9, "d_out": 2},
]


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("window", [None, ODD, Window((1, 1, 1), (1, 1), (1, 1))], ids=str)
@pytest.mark.parametrize("pose", ["vector", "matrix"])
def test_the_law_in_every_shape(pose, window, shape, variant, device, dtype):
    how = {"pose": pose, "window": window}
    # The floor is all the variance that one child has: the papers' make gradients of thousands.
    options = {"variant": variant, "variance_floor": 0.05}
    assert_law(leaves_of("b", **how, **shape), how, device, dtype, **options)
    if window is not None:
        assert_law(leaves_of(**how, **shape), how, device, dtype, **options, compete="all")


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


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
def test_a_gradient_does_not_ask_who_else_wants_one(window, variant):
    how, options = {"pose": "matrix", "window": window}, {"variant": variant}
    leaves = leaves_of("bx", **how)
    _, together = results_of("fused", leaves, how, options)
    for name in leaves:
        alone = {key: x.clone().requires_grad_(key == name) for key, x in leaves.items()}
        values = numbers_of(routed_by("fused", alone, how, options))
        values = [(x, seed) for seed, x in enumerate(values) if x.requires_grad]
        sum((x * noise_like(x, seed)).sum() for x, seed in values).backward()
        assert torch.equal(alone[name].grad, together[name]), name


@pytest.mark.parametrize("what", ["pose", "activation"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_gradient_of_one_output_alone(variant, what):
    found = []
    for kind in ("fused", "plain"):
        leaves = {name: x.requires_grad_() for name, x in leaves_of("bx").items()}
        for name, x in leaves.items():
            leaves[name] = x if not found else found[0][0][name]
        parents = routed_by(kind, leaves, {}, {"variant": variant, "iterations": 2}).parents
        output = getattr(parents, what)
        loss = (output * noise_like(output, 0)).sum()
        found.append((leaves, torch.autograd.grad(loss, leaves.values(), materialize_grads=True)))
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
@pytest.mark.parametrize("iterations", [1, 3])
def test_keep_changes_no_bit(iterations, window, tile):
    how = {"pose": "matrix", "window": window}
    leaves = {name: x.float() for name, x in leaves_of("bx", **how).items()}
    kept = {
        keep: routed_by("fused", leaves, how, {"iterations": iterations}, keep)
        for keep in ("none", "last", "steps")
    }
    assert [len(routed.steps) for routed in kept.values()] == [0, 1, iterations]
    for routed in kept.values():
        for mine, theirs in zip(routed.parents, kept["none"].parents, strict=True):
            assert torch.equal(mine, theirs)
    assert torch.equal(kept["last"].steps[0].coupling, kept["steps"].steps[-1].coupling)


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


class Largest(TorchDispatchMode):
    """Remembers the largest memory that an operation asked for, in bytes, inside ours too."""

    KERNELS: ClassVar = {
        "torchcaps::em_moments": module.moments.run_flat,
        "torchcaps::em_moments_backward": module.moments.run_backward_flat,
        "torchcaps::em_distances": module.distances.run_flat,
        "torchcaps::em_distances_backward": module.distances.run_backward_flat,
    }

    def __init__(self):
        super().__init__()
        self.bytes = 0
        self.called = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kernel = self.KERNELS.get(func.name())
        if kernel is None:
            made = func(*args, **(kwargs or {}))
        else:
            self.called.add(func.name())
            with self:
                made = kernel(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            if isinstance(x, torch.Tensor):
                self.bytes = max(self.bytes, x.untyped_storage().nbytes())
        return made


@pytest.mark.slow
@pytest.mark.parametrize("compete", ["window", "all"])
@pytest.mark.parametrize("keep", ["none", "steps"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_is_as_large_as_votes(variant, keep, compete, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_BYTES", 20_000)
    how = {"pose": "matrix", "window": Window((5, 5, 8), (3, 3), (1, 1))}
    leaves = leaves_of("bx", batch=(8,), n_out=8, d_in=16, **how)
    leaves = {name: x.float().requires_grad_() for name, x in leaves.items()}
    with Largest() as largest:
        routed = routed_by("fused", leaves, how, {"variant": variant, "compete": compete}, keep)
        (routed.parents.pose.square().sum() + routed.parents.activation.sum()).backward()
    assert largest.called == set(Largest.KERNELS)
    couplings = 4 * 8 * 9 * 72 * 8
    assert couplings <= largest.bytes < 2 * couplings


@pytest.mark.parametrize("window", [[], [5, 4, 2, 3, 2, 2, 1]], ids=["dense", "window"])
def test_the_operators_keep_the_rules_of_operators(window):
    leaves = leaves_of("x", pose="matrix", window=ODD if window else None, batch=(2,))
    tensors = [leaves[x].requires_grad_() for x in ("pose", "weight", "coordinates")]
    rest = (*tensors[:2], None, tensors[2], "none", "matrix", window, torch.float64)
    p, n_in = (6, 12) if window else (1, 6)
    weight = torch.rand(n_in, 3, p, 2, dtype=torch.float64, requires_grad=True)
    mean = torch.rand(2, p, 3, 4, dtype=torch.float64, requires_grad=True)
    operators = torch.ops.torchcaps
    for operator, given in (
        (operators.em_moments, (weight,)),
        (operators.em_distances, (mean, mean.detach().clone().requires_grad_())),
    ):
        torch.library.opcheck(
            operator.default,
            (*given, *rest),
            test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
        )


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("window", [None, ODD], ids=["dense", "window"])
def test_one_graph_compiles(window, variant):
    how = {"pose": "matrix", "window": window}
    leaves = {name: x.requires_grad_() for name, x in leaves_of("bx", **how).items()}
    names = list(leaves)

    def pose(*given):
        given = dict(zip(names, given, strict=True))
        return routed_by("fused", given, how, {"variant": variant}, "none").parents.pose

    compiled = torch.compile(pose, backend="aot_eager", fullgraph=True)
    found = []
    for op in (compiled, pose):
        made = op(*leaves.values())
        gradients = torch.autograd.grad(
            made.square().sum(), leaves.values(), materialize_grads=True
        )
        found.append((made, *gradients))
    torch.testing.assert_close(*found, rtol=0, atol=1e-10)


@pytest.mark.parametrize("iterations", [1, 2])
def test_second_derivatives_are_refused(iterations):
    leaves = {name: x.requires_grad_() for name, x in leaves_of().items()}
    pose = routed_by("fused", leaves, {}, {"iterations": iterations}).parents.pose
    (gradient,) = torch.autograd.grad(pose.square().sum(), leaves["pose"], create_graph=True)
    words = "by create_graph=True, route ops.materialise(vote_map) with ops.em_routing."
    with pytest.raises(TorchcapsError, match=re.escape(words)):
        gradient.sum().backward()


BAD = [
    ({}, {"iterations": 0}),
    ({}, {"variant": "papr"}),
    ({}, {"compete": "windows"}),
    ({}, {"compete": "all"}),
    ({}, {"child_id": torch.zeros(6, 12, dtype=torch.int64)}),
    ({}, {"keep": "all"}),
    ({"beta_a": torch.ones(4)}, {}),
    ({"beta_u": torch.ones(2, 3)}, {}),
    ({"weight": torch.ones(5, 3, 2, 2)}, {}),
    ({"bias": torch.ones(4, 5)}, {}),
    ({"activation": torch.ones(3, 40, dtype=torch.int64)}, {}),
]


@pytest.mark.parametrize(("given", "options"), BAD, ids=lambda x: str(x)[:30])
def test_what_the_plain_op_refuses_is_refused_in_its_words(given, options):
    how = {"pose": "matrix", "window": None if "compete" in options else ODD}
    leaves = leaves_of(**how) | given
    keep = options.get("keep", "none")
    with pytest.raises(TorchcapsError) as theirs:
        routed_by("plain", leaves, how, options, keep)
    with pytest.raises(TorchcapsError, match=re.escape(str(theirs.value))):
        routed_by("fused", leaves, how, options, keep)


def test_children_without_activations_are_refused():
    vote_map = VoteMap(Capsules(torch.ones(6, 4)), torch.ones(6, 3, 5, 4))
    with pytest.raises(TorchcapsError, match="EM routing weighs children by their activations"):
        em_routing(vote_map, beta_a=torch.ones(3), beta_u=torch.ones(3))
