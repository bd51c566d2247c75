"""EM routing of vote maps of every kind, by the plain op and without a vote tensor."""

import math

import torch

from torchcaps.ops import em_routing as plain_routing
from torchcaps.ops import fused, materialise, native, triton
from torchcaps.types import Capsules, VoteMap, Window

# Overlapping windows, a column unseen; rows unseen; one that is the whole grid; one position each.
ODD = Window((5, 4, 2), (3, 2), (2, 1))
WINDOWS = [None, ODD, Window((6, 3, 2), (2, 2), (3, 1)), Window((2, 3, 2), (2, 3), (1, 1))]
WINDOWS += [Window((3, 2, 4), (1, 1), (2, 1))]
VARIANTS = ["paper", "gritzman", "official"]
# Where λ is as small as in the papers, activations hardly depend on anything.
LAMBDA = {"paper": 0.5, "gritzman": 0.05, "official": 0.05}


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
    **_,
):
    """Random ones in float64, as `names` asks for: b vote bias, x coordinates."""
    slots = n_in
    if window is not None:
        n_in = math.prod(window.child_grid)
        slots = math.prod(window.kernel) * window.child_grid[2]
    side = math.isqrt(d_in)
    matrix, size = ((side, side), d_in) if pose == "matrix" else ((d_out, d_in), d_out)
    shared = {"none": (slots,), "type": (types,), "all": ()}[sharing]
    made = {
        "pose": torch.randn(*batch, n_in, d_in),
        "activation": torch.rand(*batch, n_in) + 0.1,
        "weight": torch.randn(*shared, n_out, *matrix) / math.sqrt(matrix[1]),
        "beta_a": torch.randn(n_out) / 1000,
        "beta_u": torch.randn(n_out),
    }
    if "b" in names:
        made["bias"] = torch.randn(n_out, size)
    if "x" in names:
        made["coordinates"] = torch.randn(slots, size)
    return {name: x.double() for name, x in made.items()}


def routed_by(kind, leaves, how, options, keep="steps"):
    window = how.get("window")
    vote_map = VoteMap(
        Capsules(leaves["pose"], leaves["activation"]),
        leaves["weight"],
        how.get("sharing", "none"),
        how.get("pose", "vector"),
        leaves.get("bias"),
        window,
        leaves.get("coordinates"),
    )
    given = {name: leaves[name] for name in ("beta_a", "beta_u")} | options | {"keep": keep}
    if given.get("compete") == "all" and window is not None:
        given["child_id"] = window.child_id(leaves["pose"].device)
    given.setdefault("lambda_", LAMBDA.get(given.get("variant", "paper")))
    if kind != "plain":
        return {"fused": fused, "native": native, "triton": triton}[kind].em_routing(
            vote_map, **given
        )
    seen = leaves["activation"]
    seen = seen if window is None else window.of(seen.unsqueeze(-1)).squeeze(-1)
    return plain_routing(materialise(vote_map), seen, **given)


def numbers_of(routed):
    steps = [x for step in routed.steps for x in (*step.parents, step.coupling)]
    return [*routed.parents, *steps]


def results_of(kind, leaves, how, options):
    """What every step gives, and the gradients of a random sum of it."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in leaves.items()}
    values = numbers_of(routed_by(kind, leaves, how, options))
    loss = sum((x * noise_like(x, seed)).sum() for seed, x in enumerate(values))
    gradients = torch.autograd.grad(loss, leaves.values())
    return [x.detach() for x in values], dict(zip(leaves, gradients, strict=True))


def noise_like(x, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(x.shape, dtype=torch.float64, generator=generator).to(x)


def error(fast, theirs):
    """Of numbers above one as a share of the largest."""
    if theirs.numel() == 0:
        return 0.0
    return float((fast - theirs).abs().max()) / max(float(theirs.abs().max()), 1.0)
