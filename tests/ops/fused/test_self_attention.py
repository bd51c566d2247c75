"""Fused self-attention routing is the plain one of the materialised votes: values, gradients,
errors."""

from typing import ClassVar

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from ops.fused.test_cost import Watched, size_of
from ops.fused.vote_maps import N_OUT, SIZE, both
from torchcaps.layers import DenseCapsules, SelfAttentionRouting, use_backend
from torchcaps.ops import fused as ops
from torchcaps.ops import self_attention_routing
from torchcaps.ops.costs import COSTS
from torchcaps.ops.fused import mixing, tiles
from torchcaps.tasks.footprint import Footprint
from torchcaps.types import Capsules

DENSE = ("none", "vector", None)
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


@pytest.mark.parametrize("kind", ["hinton", "exp"])
def test_float32_stays_within_its_bounds(kind):
    """Against the plain op in float64: 2e-6 of the largest value, 2e-5 of the largest gradient."""
    wide = {
        "pose": torch.randn(6, 200, 8, dtype=torch.float64),
        "weight": torch.randn(200, 10, 16, 8, dtype=torch.float64) * 0.1,
        "prior": torch.randn(200, 10, dtype=torch.float64),
    }
    found = {name: x.float() for name, x in wide.items()}
    ((reference, theirs), _), (_, (result, fast)) = (
        both(plain, fused, DENSE, each, squash=kind)
        for each in ({name: x.double() for name, x in found.items()}, found)
    )
    assert (result - reference).abs().max() <= 2e-6 * reference.abs().max()
    for name, gradient in fast.items():
        error = (gradient - theirs[name]).abs().max() / theirs[name].abs().max()
        assert error <= 2e-5, name


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
