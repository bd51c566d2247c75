"""The gradient of couplings to how likely parents are, less what cancels.

r_ij ∝ exp(ℓ_j − ½ z_ij) sums to one over parents, so with [j = k], which is one or zero,

    ∂ln r_ik / ∂ℓ_j = [j = k] − r_ij = (c_j − r_ij) + ([j = k] − c_j)

for any c_j. The second part is the same for all children of a parent, so weights over children,
which sum to one, do not see it on paper. In float32 they leave a rounding of it, which λ and the
mass of a parent make hundreds of times larger in a gradient of β that is zero. So weights are given
the first part alone, which is a number of a child, as the logarithm of its activation is; masses,
and couplings that are returned, are given both.

With g_i, the gradient of that number, the first part is Σ_i (c_j − r_ij) g_i, and c_j is r_ij of
the child with the largest |g_i|. So children that are alike to a parent leave no rounding in it,
nor does a child with a large g_i that gives it nothing.
"""

from typing import NamedTuple

from torch import Tensor

from torchcaps.ops.operators import Asked, Gradients, Operator, by_stored_votes


class Likely(NamedTuple):
    """ℓ [b, p, j], and ln r [b, p, i, j] of it, which is a constant here."""

    likely: Tensor
    log_r: Tensor


class Moves(NamedTuple):
    """Zeros that have a gradient to ℓ: both parts, and that of the logarithm of what r was divided
    by, Σ_j r_ij ∂ℓ_j."""

    of_children: Tensor
    of_parents: Tensor
    of_seen: Tensor


def _moves(given: Likely) -> Moves:
    likely, log_r = given
    children = log_r.shape[:-1]
    return Moves(
        likely.new_zeros(children), likely.new_zeros(likely.shape), likely.new_zeros(children)
    )


def _moves_backward(asked: Asked[Likely]) -> Gradients:
    of_children, of_parents, of_seen = asked.gradients
    r = asked.given.log_r.exp()
    centre = _centre(r, of_children)
    found = centre.new_zeros(centre.shape)
    if of_parents is not None:
        found += of_parents - centre * of_parents.sum(-1, keepdim=True)
    if of_seen is not None:
        found += (r * of_seen.unsqueeze(-1)).sum(-2)
    if of_children is not None:
        found -= r.sub_(centre.unsqueeze(-2)).mul_(of_children.unsqueeze(-1)).sum(-2)
    return [found, None]


def _centre(r: Tensor, of_children: Tensor | None) -> Tensor:
    """Return c [b, p, j]."""
    if of_children is None:
        return r[..., 0, :]
    largest = of_children.abs().argmax(-1)[..., None, None].expand(*r.shape[:-2], 1, r.shape[-1])
    return r.gather(-2, largest).squeeze(-2)


moves = Operator(
    "torchcaps::em_moves",
    forward=_moves,
    shapes=_moves,
    backward=_moves_backward,
    what="fused EM routing",
    instead=by_stored_votes("em_routing"),
)
