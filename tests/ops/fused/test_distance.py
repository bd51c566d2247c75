"""Fused distance routing is the plain one of the materialised votes: values, gradients, errors."""

import re
from typing import ClassVar

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from ops.fused.distance_cases import (
    ALL,
    DENSE,
    error,
    leaves_of,
    numbers_of,
    results_of,
    routed_by,
)
from ops.fused.test_cost import Watched, size_of
from ops.fused.vote_maps import KINDS, N_OUT, SIZE, WINDOW, named
from torchcaps.errors import TorchcapsError
from torchcaps.layers import DenseCapsules, DistanceRouting, use_backend
from torchcaps.ops import distance_routing as plain
from torchcaps.ops import materialise
from torchcaps.ops.costs import COSTS
from torchcaps.ops.fused import distance as module
from torchcaps.ops.fused import distance_routing, tiles
from torchcaps.tasks.footprint import Footprint
from torchcaps.types import Capsules, VoteMap

WINDOWS = ("type", "matrix", WINDOW)
VOTE_BYTES = N_OUT * SIZE * 8
# Everything in one tile; several lanes and children with a remainder; one vote a tile.
BUDGETS = {"one": 2**30, "ragged": 5 * 3 * VOTE_BYTES, "single": 1}


@pytest.fixture
def ragged(monkeypatch):
    monkeypatch.setattr(tiles, "TILE_BYTES", BUDGETS["ragged"])


def assert_law(kind, found, bar=1e-10, **options):
    values, gradients = results_of("fused", kind, found, **options)
    true_values, true_gradients = results_of("plain", kind, found, **options)
    for mine, theirs in zip(values, true_values, strict=True):
        assert error(mine, theirs) <= bar
    for name, theirs in true_gradients.items():
        assert error(gradients[name], theirs) <= bar, name


SCALES = ["sample", "batch", "given"]


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_an_empty_batch(kind):
    found = leaves_of(kind, lead=(0,), parameters=ALL)
    assert_law(kind, found, keep="steps")
    mine = {name: x.requires_grad_() for name, x in found.items()}
    routed = routed_by("fused", kind, mine, scale="batch")
    theirs = routed_by("plain", kind, mine, scale="batch")
    assert routed.parents.pose.shape == theirs.parents.pose.shape
    assert routed.scale.isnan().all()
    assert theirs.scale.isnan().all()
    gradients = torch.autograd.grad(routed.parents.pose.sum(), mine.values())
    assert all(not gradient.any() for gradient in gradients)


@pytest.mark.parametrize("detach", ["none", "votes"])
@pytest.mark.parametrize("length", [0.0, 1e-3, -1.0, 1e3])
def test_children_without_length_and_very_long_ones(length, detach):
    found = leaves_of(DENSE, parameters=ALL)
    found["length"][:, ::2] = length
    assert_law(DENSE, found, keep="steps", detach=detach)


@pytest.mark.parametrize("window", [None, WINDOW], ids=["dense", "window"])
def test_parameters_broadcast_as_in_the_plain_op(window, ragged):
    kind = ("none", "vector", window)
    slots, lead = (18, (2, 3, 6)) if window else (12, (2, 3))
    shapes = {
        "bias": [(4,), (5, 1), (*lead, 5, 4), (2, *(1,) * (len(lead) - 1), 5, 4)],
        "vote_bias": [(4,), (5, 1)],
        "coordinates": [(4,), (slots, 1), (1, 4)],
        "length": [(1,), (3, 1)] if window is None else [],
    }
    for name, every in shapes.items():
        for shape in every:
            found = leaves_of(kind, lead=(2, 3))
            found[name] = torch.rand(shape, dtype=torch.float64)
            assert_law(kind, found, keep="last")


def test_no_gradient_is_asked_for():
    found = leaves_of(DENSE)
    assert not routed_by("fused", DENSE, found).parents.pose.requires_grad
    with torch.no_grad():
        found["weight"].requires_grad_()
        assert not routed_by("fused", DENSE, found).parents.pose.requires_grad


def test_the_distances_of_a_routing_give_the_same_routing():
    found = leaves_of(DENSE, parameters=ALL)
    measured = routed_by("fused", DENSE, found, scale="batch")
    again = routed_by("fused", DENSE, found, scale=measured.scale)
    assert torch.equal(again.parents.pose, measured.parents.pose)
    assert torch.equal(again.scale, measured.scale)


def test_given_distances_are_not_the_ones_that_come_back():
    found = leaves_of(DENSE, scales=2)
    routed = routed_by("fused", DENSE, found)
    found["scale"].zero_()
    assert (routed.scale > 0).all()


@pytest.mark.parametrize("scale", ["sample", "batch"])
@pytest.mark.parametrize("kind", ["hinton", "exp"])
def test_float32_stays_within_its_bounds(kind, scale):
    """Against the plain op in float64: 2e-6 of the largest value, 2e-5 of the largest gradient."""
    found = {
        "pose": torch.randn(6, 200, 8),
        "weight": torch.randn(200, 10, 16, 8) * 0.1,
        "length": 2 * torch.rand(6, 200),
        "bias": torch.full((10, 16), 0.1),
    }
    wide = {name: x.double() for name, x in found.items()}
    options = {"squash": kind, "scale": scale}
    result, mine = results_of("fused", DENSE, found, **options)
    reference, theirs = results_of("plain", DENSE, wide, **options)
    for a, b in zip(result, reference, strict=True):
        assert (a - b).abs().max() <= 2e-6 * b.abs().max()
    for name, gradient in mine.items():
        worst = (gradient - theirs[name]).abs().max() / theirs[name].abs().max()
        assert worst <= 2e-5, name


def test_zero_votes_and_huge_ones_are_finite():
    for size in (0.0, 1e-20, 1e4):
        found = leaves_of(DENSE, dtype=torch.float32)
        found = {name: (x * size).requires_grad_() for name, x in found.items()}
        routed = routed_by("fused", DENSE, found, keep="last")
        gradients = torch.autograd.grad(routed.parents.pose.sum(), found.values())
        assert all(x.isfinite().all() for x in (routed.parents.pose, *gradients))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [DENSE, WINDOWS], ids=named)
def test_half_precision_computes_in_float32(kind, dtype):
    found = leaves_of(kind, dtype=dtype, parameters=("bias",))
    routed, wide = (
        routed_by("fused", kind, each, keep="last")
        for each in (found, {name: x.float() for name, x in found.items()})
    )
    assert torch.equal(routed.parents.pose, wide.parents.pose.to(dtype))
    assert torch.equal(routed.steps[0].coupling, wide.steps[0].coupling.to(dtype))
    assert torch.equal(routed.scale, wide.scale)
    theirs = routed_by("plain", kind, found, keep="last")
    for mine, other in zip(numbers_of(routed), numbers_of(theirs), strict=True):
        # The vote tensor is rounded before it is routed.
        assert error(mine.float(), other.float()) <= 16 * torch.finfo(dtype).eps
        assert mine.dtype == other.dtype


@pytest.mark.parametrize(
    "parameters", [pytest.param((), marks=pytest.mark.slow), ALL], ids=["plain", "parameters"]
)
def test_autocast_gives_the_dtype_and_nearly_the_numbers_of_the_plain_op(parameters):
    for dtype in (torch.float32, torch.float64):
        found = leaves_of(DENSE, dtype=dtype, parameters=parameters)
        with torch.autocast("cpu", torch.bfloat16):
            assert_law(DENSE, found, 1e-10 if dtype == torch.float64 else 0.5, keep="last")
            values, theirs = (
                numbers_of(routed_by(way, DENSE, found, keep="last")) for way in ("fused", "plain")
            )
        assert all(error(a, b) <= 0.05 for a, b in zip(values, theirs, strict=True))


def test_sizes_can_be_asked_without_computing():
    shapes = [(2, 12, 3), (2, 12), (12, 5, 4, 3)]
    pose, length, weight = (torch.empty(shape, device="meta") for shape in shapes)
    routed = distance_routing(VoteMap(Capsules(pose, length), weight), keep="last")
    assert routed.parents.pose.shape == (2, 5, 4)
    assert routed.steps[0].coupling.shape == (2, 12, 5)
    assert routed.scale.shape == (2, 2)


POSE, WEIGHT = torch.zeros(2, 12, 3), torch.zeros(12, 5, 4, 3)
VOTES = VoteMap(Capsules(POSE, POSE[..., 0]), WEIGHT)


@pytest.mark.parametrize(
    ("vote_map", "options"),
    [
        (VOTES._replace(sharing="some"), {}),
        (VOTES._replace(weight=WEIGHT.double()), {}),
        (VOTES._replace(weight=WEIGHT[1:]), {}),
        (VOTES._replace(pose="matrix"), {}),
        (VOTES._replace(bias=torch.zeros(4, 4)), {}),
        (VOTES._replace(weight=WEIGHT[:, :0]), {}),
        (VOTES._replace(children=Capsules(POSE, torch.zeros(2, 5))), {}),
        (VOTES, {"iterations": 0}),
        (VOTES, {"scale": "samples"}),
        (VOTES, {"scale": torch.ones(3)}),
        (VOTES, {"scale": torch.zeros(2)}),
        (VOTES, {"p": 0.2}),
        (VOTES, {"squash": "expo"}),
        (VOTES, {"detach": "states"}),
        (VOTES, {"keep": "step"}),
        (VOTES, {"bias": torch.zeros(4, 5)}),
    ],
)
def test_errors_are_those_of_the_plain_op(vote_map, options):
    with pytest.raises(TorchcapsError) as expected:
        plain(materialise(vote_map), vote_map.children.activation, **options)
    with pytest.raises(TorchcapsError, match=f"^{re.escape(str(expected.value))}$"):
        distance_routing(vote_map, **options)


def test_children_without_lengths_are_refused_by_either_way():
    words = (
        "distance routing keeps votes as short as their children, but the children came without "
        "lengths; give them, for example Capsules(pose, pose.norm(dim=-1))."
    )
    with pytest.raises(TorchcapsError, match=f"^{re.escape(words)}$"):
        distance_routing(VOTES._replace(children=Capsules(POSE)))


def test_gradients_of_gradients_are_refused():
    found = {name: x.requires_grad_() for name, x in leaves_of(DENSE).items()}
    parents = routed_by("fused", DENSE, found).parents.pose
    (gradient,) = torch.autograd.grad(parents.sum(), found["pose"], create_graph=True)
    words = "by create_graph=True, route ops.materialise(vote_map) with ops.distance_routing."
    with pytest.raises(TorchcapsError, match=re.escape(words)):
        gradient.sum().backward()


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["sample", "batch"])
@pytest.mark.parametrize("kind", [DENSE, WINDOWS], ids=named)
def test_compiles_as_one_graph_for_any_batch(kind, scale):
    def route(pose, weight, length, bias):
        found = {"pose": pose, "weight": weight, "length": length, "bias": bias}
        routed = routed_by("fused", kind, found, keep="last", scale=scale)
        return routed.parents.pose, routed.steps[0].coupling, routed.scale

    torch._dynamo.reset()  # What one kind was compiled for says nothing of the other.
    compiled = torch.compile(route, fullgraph=True, backend="aot_eager")
    for batch in (2, 3, 5):
        found = leaves_of(kind, lead=(batch,), parameters=("bias",))
        mine = [found[x].requires_grad_() for x in ("pose", "weight", "length", "bias")]
        results = []
        for each in (route, compiled):
            values = each(*mine)
            total = sum(x.square().sum() for x in values)
            results.append((*values, *torch.autograd.grad(total, mine)))
        torch.testing.assert_close(*results, rtol=0, atol=1e-10)


def test_exports():
    class Layer(torch.nn.Module):
        def forward(self, pose, weight, length):
            found = {"pose": pose, "weight": weight, "length": length}
            return routed_by("fused", DENSE, found).parents.pose

    found = tuple(leaves_of(DENSE, dtype=torch.float32).values())
    exported = torch.export.export(Layer(), found)
    assert torch.equal(exported.module()(*found), Layer()(*found))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("window", [[], [4, 5, 3, 2, 3, 1, 2]], ids=["dense", "window"])
def test_the_operator_keeps_the_rules_of_operators(window, scale):
    kind = ("none", "vector", WINDOW if window else None)
    found = leaves_of(kind, parameters=ALL)
    slots, windows = (18, 6) if window else (12, 1)
    found["length"] = torch.rand(2, windows, slots, dtype=torch.float64)
    found["bias"] = found["bias"].view(1, 1, N_OUT, SIZE)
    names = ("pose", "weight", "vote_bias", "coordinates", "length", "bias")
    tensors = [found[name].detach().requires_grad_() for name in names]
    given = torch.ones(2, dtype=torch.float64).requires_grad_() if scale == "given" else None
    torch.library.opcheck(
        torch.ops.torchcaps.distance_routing.default,
        (
            *(*tensors[:4], "none", "vector", window, torch.float64, *tensors[4:], given),
            *(3, 2.0, scale == "sample", True, "hinton", "none", "last"),
        ),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )


class Largest(TorchDispatchMode):
    """Remembers the largest memory that an operation asked for, in bytes, inside ours too."""

    KERNELS: ClassVar = {
        "torchcaps::distance_routing": module.measured.run_flat,
        "torchcaps::distance_routing_backward": module.measured.run_backward_flat,
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


def asked_of(count, *, sharing="none", **options):
    """The calls of the operators in one training step of a dense layer, with fake tensors."""
    calls = []

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.name() in Largest.KERNELS:
                calls.append((func, args))
            return func(*args, **(kwargs or {}))

    mode = FakeTensorMode()
    with mode, Calls():
        layer = DenseCapsules(
            n_in=96,
            d_in=8,
            n_out=10,
            d_out=16,
            sharing=sharing,
            child_grid=(4, 6, 4) if sharing == "type" else None,
            routing=DistanceRouting(bias=True, **options),
        )
        use_backend(layer, "fused")
        pose = torch.rand(count, 96, 8).requires_grad_()
        length = torch.rand(count, 96).requires_grad_()
        layer(Capsules(pose, length)).parents.pose.sum().backward()
    assert len(calls) == 2
    return mode, calls


@pytest.mark.parametrize(
    ("detach", "agreements"), [("none", (5, 5)), ("votes", (5, 3))], ids=["none", "votes"]
)
@pytest.mark.parametrize("sharing", ["none", "type"])
def test_flops_are_those_of_the_kernels(sharing, detach, agreements):
    mode, calls = asked_of(32, sharing=sharing, detach=detach, scale="batch")
    for (operator, arguments), count in zip(calls, agreements, strict=True):
        with mode, torch.no_grad(), Watched() as watched:
            Largest.KERNELS[operator.name()](*arguments)
        expected = watched.flops + count * 2 * 32 * 96 * 10 * 16
        assert COSTS[operator._overloadpacket](*arguments).flops == expected


@pytest.mark.parametrize("detach", ["none", "votes"])
def test_a_workspace_is_near_that_of_the_kernel(detach):
    mode, calls = asked_of(128, detach=detach)
    for operator, arguments in calls:
        with mode, torch.no_grad(), Footprint() as footprint:
            for tensor in tree_leaves(arguments):
                if isinstance(tensor, torch.Tensor):
                    footprint.hold(tensor, "argument")
            made = Largest.KERNELS[operator.name()](*arguments)
        found = footprint.tensors - size_of(arguments) - size_of(made)
        workspace = COSTS[operator._overloadpacket](*arguments).workspace
        assert 0.6 * found - 1e5 <= workspace <= 1.6 * found + 1e5


def test_the_counter_of_torch_knows_it():
    layer = DenseCapsules(n_in=96, d_in=8, n_out=10, d_out=16, routing="distance")
    use_backend(layer, "fused")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(Capsules(torch.rand(32, 96, 8), torch.rand(32, 96)))
    # Votes are made five times and mixed three times; in a prediction the rate is owed nothing.
    assert counter.get_total_flops() == 2 * 32 * 96 * 10 * 16 * (5 * 8 + 3)


@pytest.mark.parametrize("scale", ["sample", "batch"])
@pytest.mark.parametrize("detach", ["none", "votes"])
def test_a_layer_learns_and_stores_the_same_either_way(detach, scale):
    found = []
    children = Capsules(torch.randn(4, 9, 4).double(), torch.rand(4, 9).double())
    for backend in ("plain", "fused"):
        torch.manual_seed(0)
        routed_by = DistanceRouting(detach=detach, scale=scale, bias=True)
        layer = DenseCapsules(n_in=9, d_in=4, n_out=3, d_out=5, routing=routed_by).double()
        use_backend(layer, backend)
        routed = layer(children, keep="steps")
        routed.parents.pose.square().sum().backward()
        numbers = [*numbers_of(routed), *(p.grad for p in layer.parameters()), *layer.buffers()]
        found.append([*numbers, *numbers_of(layer.eval()(children))])
    torch.testing.assert_close(*found, rtol=0, atol=1e-10)


def test_auto_fuses_large_votes_of_many_samples_alone(monkeypatch):
    layer = DenseCapsules(n_in=64, d_in=4, n_out=8, d_out=8, routing="distance")
    # The numbers of one sample.
    monkeypatch.setattr("torchcaps.layers.routing.backend.FUSED_FROM", 4096)
    for count, fuses in ((15, False), (16, True)):
        assert isinstance(layer.votes(Capsules(torch.rand(count, 64, 4))), VoteMap) is fuses
