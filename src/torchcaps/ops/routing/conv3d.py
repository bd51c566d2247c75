"""3-D convolutional dynamic routing: a child is a whole map of one type, and every parent of the
next map, at every position, competes for it.

[rajasegaran2019], https://arxiv.org/abs/1904.09546; cited by [renzulli2025] §2.2. The votes come
from a 3-D convolution, see `layers.Conv3dCapsules`.

for t = 1 … iterations:
    c_ij = softmax_j(b_ij)                    over positions and types together: "3D softmax"
    s_j  = Σ_i c_ij û_ij + bias_type(j)
    v_j  = g(s_j)                             hinton, with the norm that `squash_over` names
    b_ij ← b_ij + ⟨û_ij, v_j⟩

Departures:
1. The update of b after the last iteration is skipped: it changes neither v nor the c it came from.
Ambiguities:
1. "map", the default, is public code: ‖s‖ is that of a parent type over (h, w, d) together, so all
   parents of a type share one scale. "pose" takes ‖s_j‖ of each parent, as a reader of
   [renzulli2025] would; it is dynamic routing with a bias for each type.
2. The text does not say where gradients stop: nowhere in the code of [rajasegaran2019], at the
   votes of all but the last iteration in that of [renzulli2025]. `detach` has the readings of
   `dynamic_routing`.
"""

import math
from typing import Literal, get_args

from torch import Tensor

from torchcaps._checks import check_choice
from torchcaps.errors import TorchcapsError
from torchcaps.ops.checks import (
    check_broadcast,
    check_iterations,
    check_keep,
    check_votes,
    widen,
    without_autocast,
)
from torchcaps.ops.routing.common import capsules
from torchcaps.ops.routing.couple import coupled_or_even
from torchcaps.ops.routing.dynamic import Detach
from torchcaps.ops.squashing import squash_known as g
from torchcaps.types import Couple, Grid, Keep, Routed, Step

# Whose norm squashes a parent: that of its type's whole map, or its own.
SquashOver = Literal["map", "pose"]
# The axes of [*b, h, w, type, d] over which a type has one norm.
MAP = (-4, -3, -1)


def conv3d_routing(
    votes: Tensor,
    *,
    parent_grid: Grid,
    iterations: int = 3,
    bias: Tensor | None = None,
    squash_over: SquashOver = "map",
    detach: Detach = "none",
    keep: Keep = "none",
    couple: Couple | None = None,
) -> Routed:
    """Route votes [*b, i, j, d] of child types i to parents j = (h, w, type), flattened: all
    parents of the next map compete for a whole map of children.

    Arguments:
        votes: [*b, i, j, d]: what the map of each child type i predicts of the pose of each parent
            j.
        parent_grid: (height, width, types) of the parents, whose product is j.
        iterations: how often couplings are made, from 1; the first ones are even.
        bias: [type, d], added before every squash, the same at every position; None: nothing is
            added.
        squash_over: whose norm squashes a parent. "map": that of its type over all positions
            together, as in public code. "pose": its own.
        detach: what is a constant to the gradient, as in `dynamic_routing`: "none", "votes",
            "states" or "coupling".
        keep: which iterations the result's `steps` hold, with their couplings: "none", "last", or
            all "steps".
        couple: a function on the couplings [*b, i, j] of the last iteration, by whose result the
            parents are made and which `keep` records.

    >>> conv3d_routing(torch.ones(32, 128, 8), parent_grid=(2, 2, 32)).parents.pose.shape
    torch.Size([128, 8])
    """
    n_out = _check_grid(votes, parent_grid, bias)
    check_iterations(iterations)
    check_choice("squash_over", squash_over, get_args(SquashOver))
    check_choice("detach", detach, get_args(Detach))
    check_keep(keep)
    dtype, votes = votes.dtype, widen(votes)
    steps = []
    with without_autocast(votes):
        b: Tensor | None = None  # [*b, i, j]
        # Once, not in the loop: float16 would round the gradient of every iteration.
        bias = None if bias is None else bias.to(votes.dtype)
        for t in range(1, iterations + 1):
            last = t == iterations
            seen = votes.detach() if detach == "votes" and not last else votes
            c = None if b is None else (b.detach() if detach == "coupling" else b).softmax(-1)
            if last:
                c = coupled_or_even(couple, c, votes, 1 / n_out)
            # As products of matrices these would be thousands of tiny ones.
            s = seen.sum(-3) / n_out if c is None else (c.unsqueeze(-1) * seen).sum(-3)
            s = s.unflatten(-2, parent_grid)  # [*b, h, w, type, d]
            if bias is not None:
                s = s + bias
            v = g(s, axes=MAP if squash_over == "map" else -1).flatten(-4, -2)  # [*b, j, d]
            if keep == "steps" or (keep == "last" and last):
                c = votes.new_full(votes.shape[:-1], 1 / n_out) if c is None else c
                steps.append(Step(None, c.to(dtype), capsules(v, dtype)))
            if not last:
                agreed = v.detach() if detach == "states" else v
                agreement = (seen * agreed.unsqueeze(-3)).sum(-1)
                b = agreement if b is None else b + agreement
    return Routed(capsules(v, dtype), tuple(steps))


def _check_grid(votes: Tensor, parent_grid: Grid, bias: Tensor | None) -> int:
    """Say how many parents there are."""
    check_votes(votes)
    *_, n_out, size = votes.shape
    if len(parent_grid) != 3 or min(parent_grid) < 1 or math.prod(parent_grid) != n_out:
        raise TorchcapsError(
            f"parent_grid must be (height, width, types) with a product of {n_out}, the number of "
            f"parents in votes {list(votes.shape)}, but came as {tuple(parent_grid)}; is it that "
            f"of the children, or are the votes ordered otherwise?"
        )
    check_broadcast("bias", bias, (parent_grid[-1], size), "[type, pose]")
    return n_out
