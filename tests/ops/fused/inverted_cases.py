"""Vote maps of every kind, and inverted routing by every form."""

import math

import torch

from torchcaps.ops import fused, materialise, native, triton
from torchcaps.ops import inverted_routing as plain_routing
from torchcaps.types import Capsules, VoteMap, Window

# An odd grid, windows that overlap across and leave a column of children unseen, …
ODD = Window((5, 4, 2), (3, 2), (2, 1))
# … that leave rows unseen, one that is the whole grid, one position a window.
WINDOWS = [None, ODD, Window((6, 3, 2), (2, 2), (3, 1)), Window((2, 3, 2), (2, 3), (1, 1))]
WINDOWS += [Window((3, 2, 4), (1, 1), (2, 1))]


def leaves_of(
    names="",
    *,
    batch=(3,),
    n_in=6,
    n_out=3,
    d_in=4,
    d_out=5,
    pose="vector",
    sharing="none",
    types=2,
    window=None,
):
    """Random ones in float64, as `names` asks for: b vote bias, x coordinates, n norm, s start."""
    slots = n_in
    if window is not None:
        n_in, slots = math.prod(window.child_grid), slots_of(window)
    side = math.isqrt(d_in)
    matrix, size = ((side, side), d_in) if pose == "matrix" else ((d_out, d_in), d_out)
    shared = {"none": (slots,), "type": (types,), "all": ()}[sharing]
    made = {
        "pose": torch.randn(*batch, n_in, d_in),
        "weight": torch.randn(*shared, n_out, *matrix) / math.sqrt(matrix[1]),
    }
    if "b" in names:
        made["bias"] = torch.randn(n_out, size)
    if "x" in names:
        made["coordinates"] = torch.randn(slots, size)
    if "n" in names:
        made |= {"norm_weight": torch.randn(size), "norm_bias": torch.randn(size)}
    if "s" in names:
        made["start"] = torch.randn(n_out, size)
    return {name: x.double() for name, x in made.items()}


def slots_of(window):
    return math.prod(window.kernel) * window.child_grid[2]


def vote_map_of(leaves, *, pose="vector", sharing="none", window=None, **_):
    return VoteMap(
        Capsules(leaves["pose"]),
        leaves["weight"],
        sharing,
        pose,
        leaves.get("bias"),
        window,
        leaves.get("coordinates"),
    )


def parameters_of(leaves):
    given = {"start": leaves["start"]} if "start" in leaves else {}
    if "norm_weight" in leaves:
        given["norm"] = leaves["norm_weight"], leaves["norm_bias"]
    return given


def routed_by(kind, leaves, how, options, keep="steps"):
    vote_map = vote_map_of(leaves, **how)
    given = parameters_of(leaves) | options | {"keep": keep}
    if kind == "plain":
        return plain_routing(materialise(vote_map), **given)
    return {"fused": fused, "native": native, "triton": triton}[kind].inverted_routing(
        vote_map, **given
    )


def results_of(kind, leaves, how, options):
    """Poses and couplings of all steps, and the gradients of random sums of them."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in leaves.items()}
    routed = routed_by(kind, leaves, how, options)
    values = [x for step in routed.steps for x in (step.parents.pose, step.coupling)]
    loss = sum((x * noise_like(x, seed)).sum() for seed, x in enumerate(values))
    gradients = torch.autograd.grad(loss, leaves.values(), allow_unused=True)
    return [x.detach() for x in values], dict(zip(leaves, gradients, strict=True))


def noise_like(x, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(x.shape, dtype=torch.float64, generator=generator).to(x)


def error(fast, theirs, least=0.0):
    """A share of the largest number, which counts as `least` where all may be rounding alone."""
    if theirs.numel() == 0:
        return 0.0
    return float((fast - theirs).abs().max()) / max(float(theirs.abs().max()), least)
