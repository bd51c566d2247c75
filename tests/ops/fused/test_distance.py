"""Fused distance routing is the plain one of the materialised votes: values, gradients, errors."""

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
    results_of,
    routed_by,
)
from ops.fused.test_cost import Watched, size_of
from ops.fused.vote_maps import KINDS, N_OUT, SIZE, named
from torchcaps.layers import DenseCapsules, DistanceRouting, use_backend
from torchcaps.ops.costs import COSTS
from torchcaps.ops.fused import distance as module
from torchcaps.ops.fused import tiles
from torchcaps.tasks.footprint import Footprint
from torchcaps.types import Capsules

VOTE_BYTES = N_OUT * SIZE * 8
# Everything in one tile; several lanes and children with a remainder; one vote a tile.
BUDGETS = {"one": 2**30, "ragged": 5 * 3 * VOTE_BYTES, "single": 1}


@pytest.fixture
def ragged(monkeypatch):
    monkeypatch.setattr(tiles, "TILE_BYTES", BUDGETS["ragged"])


def assert_law(kind, found, bar=1e-10, **options):
    values, gradients = results_of("fused", kind, found, **options)
    true_values, true_gradients = results_of("plain", kind, found, **options)
    for fast, theirs in zip(values, true_values, strict=True):
        assert error(fast, theirs) <= bar
    for name, theirs in true_gradients.items():
        assert error(gradients[name], theirs) <= bar, name


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_an_empty_batch(kind):
    found = leaves_of(kind, lead=(0,), parameters=ALL)
    assert_law(kind, found, keep="steps")
    leaves = {name: x.requires_grad_() for name, x in found.items()}
    routed = routed_by("fused", kind, leaves, scale="batch")
    theirs = routed_by("plain", kind, leaves, scale="batch")
    assert routed.parents.pose.shape == theirs.parents.pose.shape
    assert routed.scale.isnan().all()
    assert theirs.scale.isnan().all()
    gradients = torch.autograd.grad(routed.parents.pose.sum(), leaves.values())
    assert all(not gradient.any() for gradient in gradients)


@pytest.mark.parametrize("detach", ["none", "votes"])
@pytest.mark.parametrize("length", [0.0, 1e-3, -1.0, 1e3])
def test_children_without_length_and_very_long_ones(length, detach):
    found = leaves_of(DENSE, parameters=ALL)
    found["length"][:, ::2] = length
    assert_law(DENSE, found, keep="steps", detach=detach)


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
    result, fast = results_of("fused", DENSE, found, **options)
    reference, theirs = results_of("plain", DENSE, wide, **options)
    for a, b in zip(result, reference, strict=True):
        assert (a - b).abs().max() <= 2e-6 * b.abs().max()
    for name, gradient in fast.items():
        worst = (gradient - theirs[name]).abs().max() / theirs[name].abs().max()
        assert worst <= 2e-5, name


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
