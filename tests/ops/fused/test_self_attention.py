"""Fused self-attention routing is the plain one of the materialised votes: values, gradients,
errors."""

import re
from typing import ClassVar

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from ops.fused.test_cost import Watched, size_of
from ops.fused.vote_maps import KINDS, N_OUT, SIZE, WINDOW, both, largest_errors, leaves, named
from ops.fused.vote_maps import vote_map as map_of
from torchcaps.errors import TorchcapsError
from torchcaps.layers import DenseCapsules, SelfAttentionRouting, use_backend
from torchcaps.ops import fused as ops
from torchcaps.ops import materialise, self_attention_routing
from torchcaps.ops.costs import COSTS
from torchcaps.ops.fused import mixing, tiles
from torchcaps.tasks.footprint import Footprint
from torchcaps.types import Capsules, VoteMap

DENSE, WINDOWS = ("none", "vector", None), ("type", "matrix", WINDOW)
ALL = ("vote_bias", "coordinates", "prior")
VOTE_BYTES = N_OUT * SIZE * 8
# Everything in one tile; several lanes and children with a remainder; one vote a tile.
BUDGETS = {"one": 2**30, "ragged": 5 * 3 * VOTE_BYTES, "single": 1}


def plain(votes, *, prior=None, **options):
    return self_attention_routing(votes, bias=prior, **options)


def fused(vote_map, *, prior=None, **options):
    return ops.self_attention_routing(vote_map, bias=prior, **options)


@pytest.fixture
def ragged(monkeypatch):
    monkeypatch.setattr(tiles, "TILE_BYTES", BUDGETS["ragged"])


@pytest.mark.parametrize("window", [None, WINDOW], ids=["dense", "window"])
def test_parameters_broadcast_as_in_the_plain_op(window, ragged):
    kind = ("none", "vector", window)
    slots, lead = (18, (2, 3, 6)) if window else (12, (2, 3))
    shapes = {
        "prior": [(5,), (slots, 1), (*lead, slots, 5), (1, *lead[1:], 1, 5)],
        "vote_bias": [(4,), (5, 1)],
        "coordinates": [(4,), (slots, 1), (1, 4)],
    }
    for name, every in shapes.items():
        for shape in every:
            found = leaves(kind, lead=(2, 3)) | {name: torch.randn(shape, dtype=torch.float64)}
            errors = largest_errors(plain, fused, kind, found, keep="last")
            assert max(errors.values()) <= 1e-10, (name, shape, errors)


def test_no_gradient_is_asked_for():
    found = leaves(DENSE)
    assert not fused(map_of(DENSE, found)).parents.pose.requires_grad
    with torch.no_grad():
        found["weight"].requires_grad_()
        assert not fused(map_of(DENSE, found)).parents.pose.requires_grad


@pytest.mark.parametrize("kind", ["hinton", "exp"])
def test_float32_stays_within_its_bounds(kind):
    """Against the plain op in float64: 2e-6 of the largest value, 2e-5 of the largest gradient."""
    wide = {
        "pose": torch.randn(6, 200, 8, dtype=torch.float64),
        "weight": torch.randn(200, 10, 16, 8, dtype=torch.float64) * 0.1,
        "prior": torch.randn(200, 10, dtype=torch.float64),
    }
    found = {name: x.float() for name, x in wide.items()}
    ((reference, theirs), _), (_, (result, mine)) = (
        both(plain, fused, DENSE, each, squash=kind)
        for each in ({name: x.double() for name, x in found.items()}, found)
    )
    assert (result - reference).abs().max() <= 2e-6 * reference.abs().max()
    for name, gradient in mine.items():
        error = (gradient - theirs[name]).abs().max() / theirs[name].abs().max()
        assert error <= 2e-5, name


def test_zero_votes_and_huge_ones_are_finite():
    for scale in (0.0, 1e-20, 1e4):
        found = {name: (x.float() * scale).requires_grad_() for name, x in leaves(DENSE).items()}
        routed = fused(map_of(DENSE, found), keep="last")
        gradients = torch.autograd.grad(routed.parents.pose.sum(), found.values())
        assert all(x.isfinite().all() for x in (routed.parents.pose, *gradients))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_half_precision_computes_in_float32(kind, dtype):
    found = leaves(kind, dtype=dtype)
    routed, wide = (
        fused(map_of(kind, each), keep="last")
        for each in (found, {name: x.float() for name, x in found.items()})
    )
    assert torch.equal(routed.parents.pose, wide.parents.pose.to(dtype))
    assert torch.equal(routed.steps[0].coupling, wide.steps[0].coupling.to(dtype))
    # The vote tensor is rounded before it is routed, and logits sum its errors.
    errors = largest_errors(plain, fused, kind, found)
    assert errors["values"] <= 32 * torch.finfo(dtype).eps


@pytest.mark.parametrize(
    "parameters", [pytest.param((), marks=pytest.mark.slow), ALL], ids=["plain", "parameters"]
)
def test_autocast_gives_the_dtype_and_nearly_the_numbers_of_the_plain_op(parameters):
    for dtype in (torch.float32, torch.float64):
        found = leaves(DENSE, dtype=dtype, parameters=parameters)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            errors = largest_errors(plain, fused, DENSE, found, keep="last")
        assert errors["values"] <= 0.05, errors
        if dtype == torch.float64:
            assert max(errors.values()) <= 1e-10, errors


def test_sizes_can_be_asked_without_computing():
    pose, weight = (torch.empty(s, device="meta") for s in [(2, 12, 3), (12, 5, 4, 3)])
    routed = fused(VoteMap(Capsules(pose), weight), keep="last")
    assert routed.parents.pose.shape == (2, 5, 4)
    assert routed.steps[0].coupling.shape == (2, 12, 5)


POSE, WEIGHT = torch.zeros(2, 12, 3), torch.zeros(12, 5, 4, 3)
VOTES = VoteMap(Capsules(POSE), WEIGHT)


@pytest.mark.parametrize(
    ("vote_map", "options"),
    [
        (VOTES._replace(sharing="some"), {}),
        (VOTES._replace(weight=WEIGHT.double()), {}),
        (VOTES._replace(weight=WEIGHT[1:]), {}),
        (VOTES._replace(pose="matrix"), {}),
        (VOTES._replace(bias=torch.zeros(4, 4)), {}),
        (VOTES._replace(weight=WEIGHT[:, :0]), {}),
        (VOTES, {"squash": "expo"}),
        (VOTES, {"keep": "step"}),
        (VOTES, {"prior": torch.zeros(5, 12)}),
    ],
)
def test_errors_are_those_of_the_plain_op(vote_map, options):
    with pytest.raises(TorchcapsError) as expected:
        plain(materialise(vote_map), **options)
    with pytest.raises(TorchcapsError, match=f"^{re.escape(str(expected.value))}$"):
        fused(vote_map, **options)


def test_gradients_of_gradients_are_refused():
    found = {name: x.requires_grad_() for name, x in leaves(DENSE).items()}
    parents = fused(map_of(DENSE, found)).parents.pose
    (gradient,) = torch.autograd.grad(parents.sum(), found["pose"], create_graph=True)
    words = (
        "by create_graph=True, route ops.materialise(vote_map) with the routing of torchcaps.ops"
    )
    with pytest.raises(TorchcapsError, match=re.escape(words)):
        gradient.sum().backward()


@pytest.mark.parametrize("kind", [pytest.param(DENSE, marks=pytest.mark.slow), WINDOWS], ids=named)
def test_compiles_as_one_graph_for_any_batch(kind):
    def route(pose, weight, prior):
        vote_map = map_of(kind, {"pose": pose, "weight": weight})
        routed = fused(vote_map, prior=prior, keep="last")
        return routed.parents.pose, routed.steps[0].coupling

    torch._dynamo.reset()  # What one kind was compiled for says nothing of the other.
    compiled = torch.compile(route, fullgraph=True, backend="aot_eager")
    for batch in (2, 3, 5):
        found = leaves(kind, lead=(batch,), parameters=("prior",))
        mine, results = [x.requires_grad_() for x in found.values()], []
        for each in (route, compiled):
            values = each(*mine)
            total = sum(x.square().sum() for x in values)
            results.append((*values, *torch.autograd.grad(total, mine)))
        torch.testing.assert_close(*results, rtol=0, atol=1e-10)


def test_exports():
    class Layer(torch.nn.Module):
        def forward(self, pose, weight):
            return fused(map_of(DENSE, {"pose": pose, "weight": weight})).parents.pose

    found = tuple(leaves(DENSE, dtype=torch.float32).values())
    exported = torch.export.export(Layer(), found)
    assert torch.equal(exported.module()(*found), Layer()(*found))


@pytest.mark.parametrize("window", [[], [4, 5, 3, 2, 3, 1, 2]], ids=["dense", "window"])
def test_the_operator_keeps_the_rules_of_operators(window):
    found = leaves(("none", "vector", WINDOW if window else None), parameters=ALL)
    tensors = [found[x].requires_grad_() for x in ("pose", "weight", "vote_bias", "coordinates")]
    prior = found["prior"].view(1, 1, -1, N_OUT).requires_grad_()
    made_of = (*tensors, "none", "vector", window, torch.float64)
    loop = ("present", "none", False, 0.5, 2, 1.0, False, "none", 1)
    torch.library.opcheck(
        torch.ops.torchcaps.mixing.default,
        (*made_of, None, prior, None, None, None, *loop),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )


class Largest(TorchDispatchMode):
    """Remembers the largest memory that an operation asked for, in bytes, inside ours too."""

    KERNELS: ClassVar = {
        "torchcaps::mixing": mixing.mix.run_flat,
        "torchcaps::mixing_backward": mixing.mix.run_backward_flat,
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


def asked_of(count, **options):
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
            n_in=96, d_in=8, n_out=10, d_out=16, routing=SelfAttentionRouting(), **options
        )
        use_backend(layer, "fused")
        pose = torch.rand(count, 96, 8).requires_grad_()
        layer(Capsules(pose)).parents.pose.sum().backward()
    assert len(calls) == 2
    return mode, calls


@pytest.mark.parametrize("sharing", ["none", "type"])
def test_flops_are_those_of_the_kernels(sharing):
    grid = (4, 6, 4) if sharing == "type" else None
    mode, calls = asked_of(32, sharing=sharing, child_grid=grid)
    for (operator, arguments), count in zip(calls, (1, 3), strict=True):
        with mode, torch.no_grad(), Watched() as watched:
            Largest.KERNELS[operator.name()](*arguments)
        expected = watched.flops + count * 2 * 32 * 96 * 10 * 16
        assert COSTS[operator._overloadpacket](*arguments).flops == expected


def test_a_workspace_is_near_that_of_the_kernel():
    mode, calls = asked_of(128)
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
    layer = DenseCapsules(n_in=96, d_in=8, n_out=10, d_out=16, routing="self_attention")
    use_backend(layer, "fused")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(Capsules(torch.rand(32, 96, 8)))
    # All are summed; then parents are folded and met, and children weighed and mixed.
    assert counter.get_total_flops() == 2 * 32 * 96 * 10 * 8 * (16 + (16 + 1) + (1 + 16))


@pytest.mark.parametrize("prior", ["zero", "learned"])
def test_a_layer_is_the_same_either_way(prior):
    found, children = [], Capsules(torch.randn(4, 9, 4).double())
    for backend in ("plain", "fused"):
        torch.manual_seed(0)
        attention = SelfAttentionRouting(prior=prior, squash="hinton")
        layer = DenseCapsules(n_in=9, d_in=4, n_out=3, d_out=5, routing=attention).double()
        if prior == "learned":
            torch.nn.init.normal_(attention.prior)
        use_backend(layer, backend)
        routed = layer(children, keep="steps")
        (step,) = routed.steps
        (routed.parents.pose.square().sum() + step.coupling.square().sum()).backward()
        gradients = [p.grad for p in layer.parameters()]
        found.append([*routed.parents, step.coupling, *step.parents, *gradients])
    torch.testing.assert_close(*found, rtol=0, atol=1e-10)


def test_auto_fuses_large_votes_of_many_samples_alone(monkeypatch):
    layer = DenseCapsules(n_in=64, d_in=4, n_out=8, d_out=8, routing="self_attention")
    # The numbers of one sample.
    monkeypatch.setattr("torchcaps.layers.routing.backend.FUSED_FROM", 4096)
    for count, fuses in ((15, False), (16, True)):
        assert isinstance(layer.votes(Capsules(torch.rand(count, 64, 4))), VoteMap) is fuses
