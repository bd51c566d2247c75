"""Vote maps of every kind, small and odd, and the same routing by both ways."""

import torch

from torchcaps.ops import materialise
from torchcaps.types import Capsules, VoteMap, Window

WINDOW = Window((4, 5, 3), (2, 3), (1, 2))  # 6 windows of 18 slots, overlapping
N_OUT, SIZE = 5, 4
KINDS = [
    (sharing, pose, window)
    for sharing in ("none", "type", "all")
    for pose in ("vector", "matrix")
    for window in (None, WINDOW)
]


def named(kind):
    sharing, pose, window = kind
    return f"{sharing}-{pose}{'-window' if window else ''}"


def leaves(
    kind, *, lead=(2,), n_in=12, n_out=N_OUT, d_out=SIZE, dtype=torch.float64, parameters=()
):
    """Random tensors by name: pose, weight, and those of the parameters that are asked for."""
    sharing, pose, window = kind
    slots, children = (18, 60) if window else (n_in, n_in)
    shared = {"none": (slots,), "type": (3,), "all": ()}[sharing]
    d_out = SIZE if pose == "matrix" else d_out
    matrix = (2, 2) if pose == "matrix" else (d_out, SIZE)
    shapes = {
        "pose": (*lead, children, SIZE),
        "weight": (*shared, n_out, *matrix),
        "vote_bias": (n_out, d_out),
        "coordinates": (slots, d_out),
        "bias": (n_out, d_out),
        "prior": (slots, n_out),
    }
    return {
        name: torch.randn(shape, dtype=torch.float64).to(dtype)
        for name, shape in shapes.items()
        if name in ("pose", "weight", *parameters)
    }


def vote_map(kind, found):
    sharing, pose, window = kind
    return VoteMap(
        Capsules(found["pose"]),
        found["weight"],
        sharing,
        pose,
        found.get("vote_bias"),
        window,
        found.get("coordinates"),
    )


def values(routed):
    """All numbers that a routing gives, in one row."""
    tensors = [*routed.parents]
    for step in routed.steps:
        tensors += [step.coupling, *step.parents]
    return torch.cat([x.flatten() for x in tensors])


def both(plain, fused, kind, found, **options):
    """(values, gradients by name) of the plain and of the fused op."""
    for op in (lambda vm, **rest: plain(materialise(vm), **rest), fused):
        leaves = {name: x.detach().clone().requires_grad_() for name, x in found.items()}
        rest = {name: leaves[name] for name in ("bias", "prior") if name in leaves}
        result = values(op(vote_map(kind, leaves), **rest, **options))
        weight = torch.linspace(-1, 1, result.numel(), dtype=torch.float64).to(result)
        gradients = torch.autograd.grad(
            (result * weight).sum(), leaves.values(), materialize_grads=True
        )
        yield result.detach(), dict(zip(leaves, gradients, strict=True))
