"""The costs of the fused operators, against kernels that are watched."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from torchcaps.layers import (
    ConvCapsules,
    DenseCapsules,
    DistanceRouting,
    DynamicRouting,
    use_backend,
)
from torchcaps.ops.costs import COSTS
from torchcaps.ops.fused import distance, em, likely, mixing
from torchcaps.tasks.footprint import Footprint
from torchcaps.types import Capsules

aten = torch.ops.aten
KERNELS = {}
for operator in (mixing.mix, em.moments, em.distances, likely.moves, distance.measured):
    KERNELS[operator.forward.overloadpacket] = operator.run_flat
    KERNELS[operator.backward.overloadpacket] = operator.run_backward_flat
B, N_IN, J, D = 32, 96, 10, 16


class Watched(TorchDispatchMode):
    """Calls of the operators, and FLOPs of the products of a kernel, those in place too."""

    def __init__(self):
        super().__init__()
        self.calls, self.flops = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        operator = func._overloadpacket
        if operator in KERNELS:
            self.calls.append((operator, args))
        elif operator in (aten.addmm_, aten.baddbmm_):
            self.flops += 2 * args[1].numel() * args[2].shape[-1]
        elif operator in flop_registry:
            self.flops += flop_registry[operator](*args, **(kwargs or {}), out_val=out)
        return out


def dense(routing, **options):
    return DenseCapsules(n_in=N_IN, d_in=8, n_out=J, d_out=D, routing=routing, **options)


LAYERS = {
    "dense": lambda routing: dense(routing),
    "shared": lambda routing: dense(routing, sharing="type", child_grid=(4, 6, 4)),
    "windows": lambda routing: ConvCapsules(
        child_grid=(6, 7, 4), d_in=16, types=5, d_out=16, pose="matrix", routing=routing
    ),
}


# Distance routing with its gradients, and with votes that are constants to all but its last sum.
DETACHED = {"distance": "none", "distance of constants": "votes"}


def layer_of(routing, kind="dense"):
    if routing in DETACHED:
        routing = DistanceRouting(bias=True, scale="batch", detach=DETACHED[routing])
    return LAYERS[kind](routing)


def calls(layer, count=B):
    """What a step asks of the fused operators, with fake tensors."""
    use_backend(layer, "fused")
    mode = FakeTensorMode()
    with mode, Watched() as watched:
        for name, weight in layer.named_parameters():
            where, _, last = name.rpartition(".")
            module = layer.get_submodule(where)
            module._parameters[last] = torch.nn.Parameter(torch.empty(weight.shape))
        for name, x in layer.routing.named_buffers():
            layer.routing._buffers[name] = torch.empty(x.shape)
        pose = torch.rand(count, layer.n_in, layer.d_in).requires_grad_()
        length = torch.rand(count, layer.n_in).requires_grad_()
        layer(Capsules(pose, length)).parents.pose.sum().backward()
    return mode, watched.calls


# Multiply-adds a number of all votes, in units of 2 b i j d, which are no products in a kernel.
AGREEMENTS = {"dynamic": [4, 10], "uniform": [0, 0], "inverted": [2, 5], "self_attention": [2, 5]}
AGREEMENTS |= {"distance": [5, 5], "distance of constants": [5, 3]}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("routing", [*AGREEMENTS, "em"])
def test_flops_are_those_of_the_kernels(routing, kind):
    mode, asked = calls(layer_of(routing, kind))
    numbers = B * N_IN * J * D if kind != "windows" else B * 20 * 36 * 5 * 16
    extra = AGREEMENTS.get(routing, [0] * len(asked))
    assert len(asked) == len(extra) > 0
    for (operator, arguments), agreements in zip(asked, extra, strict=True):
        with mode, torch.no_grad(), Watched() as watched:
            KERNELS[operator](*arguments)
        assert COSTS[operator](*arguments).flops == watched.flops + agreements * 2 * numbers


# Inverted routing through windows begins with a convolution, whose scratch is not its workspace.
WATCHED = [(routing, "dense") for routing in ("dynamic", "uniform", "inverted", "em")]
WATCHED += [("dynamic", "shared"), ("em", "shared"), ("dynamic", "windows")]
WATCHED = [pytest.param(*each, marks=pytest.mark.drawn(2)) for each in WATCHED]
WATCHED += [(routing, "dense") for routing in (*DETACHED, "self_attention")]


@pytest.mark.parametrize(("routing", "kind"), WATCHED)
def test_a_workspace_is_near_that_of_the_kernel(routing, kind):
    mode, asked = calls(layer_of(routing, kind), 128)
    assert asked
    for operator, arguments in asked:
        with mode, torch.no_grad(), Footprint() as footprint:
            for tensor in tree_leaves(arguments):
                if isinstance(tensor, torch.Tensor):
                    footprint.hold(tensor, "argument")
            made = KERNELS[operator](*arguments)
        found = footprint.tensors - size_of(arguments) - size_of(made)
        assert 0.6 * found - 1e5 <= COSTS[operator](*arguments).workspace <= 1.6 * found + 1e5


def size_of(tensors):
    """Bytes of their storages, each counted once."""
    storages = [x.untyped_storage() for x in tree_leaves(tensors) if isinstance(x, torch.Tensor)]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


# What `AGREEMENTS` counts: forwards, and backwards. A learned prior weighs the first sum too, so
# there is one more; what is constant in all but the last sum leaves two.
LEFT_OUT = {
    ("zero", "none"): [4, 10],
    ("zero", "votes"): [4, 2],
    ("zero", "states"): [4, 4],
    ("zero", "coupling"): [4, 2],
    ("learned", "none"): [5, 12],
    ("learned", "votes"): [5, 8],
    ("learned", "states"): [5, 4],
    ("learned", "coupling"): [5, 2],
}


@pytest.mark.parametrize("detach", ["none", "votes", "states", "coupling"])
@pytest.mark.parametrize("prior", ["zero", "learned"])
def test_the_gradients_that_are_left_out_cost_nothing(detach, prior):
    layer = dense(DynamicRouting(detach=detach, prior=prior))
    mode, asked = calls(layer)
    unit = 2 * B * N_IN * J * layer.d_out
    extra = []
    for operator, arguments in asked:
        with mode, torch.no_grad(), Watched() as watched:
            KERNELS[operator](*arguments)
        extra.append((COSTS[operator](*arguments).flops - watched.flops) / unit)
    assert extra == LEFT_OUT[prior, detach]


@pytest.mark.parametrize(
    ("routing", "numbers"),
    [
        # All are summed once, then made twice, met and mixed; or made once.
        ("dynamic", D * 8 + 2 * D * (8 + 2)),
        ("self_attention", D * 8 + D * (8 + 2)),
        # Made five times and mixed three times; in a prediction the rate is owed nothing.
        ("distance", D * (5 * 8 + 3)),
    ],
)
def test_the_counter_of_torch_knows_them(routing, numbers):
    layer = dense(routing)
    use_backend(layer, "fused")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(Capsules(torch.rand(B, N_IN, 8), torch.rand(B, N_IN)))
    assert counter.get_total_flops() == 2 * B * N_IN * J * numbers
