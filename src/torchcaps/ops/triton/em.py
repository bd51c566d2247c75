"""EM routing from a vote map by Triton kernels: votes live in the registers of a GPU.

The algorithm, its papers and its options are those of `ops.em_routing`, the equations those of
`ops.fused.em_routing`. Kernels meet the votes: they sum moments, measure distances, and go back.
Couplings are tensors [b, p, i, j] of PyTorch, so every variant and both ways to compete are known.

Departures: half precision is widened before it is multiplied. float32 is multiplied in full
precision, unless torch.set_float32_matmul_precision allows TensorFloat-32. float64 goes the fused
way, as do poses so large that the weights of one pair have more than 8192 numbers.
Ambiguities: none.

Kept are the children, the weights, the parents of every iteration and three tensors of couplings:
those of the last, as in the fused form.
Backwards through windows, the gradients of poses lie in memory once for every window that sees
them.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops import fused
from torchcaps.ops.fused.em import Met, Moments, Shared, route
from torchcaps.ops.fused.tiles import MadeOf, vote_like
from torchcaps.ops.operators import Asked, Gradients, Operator, by_stored_votes
from torchcaps.ops.triton import votes as tiles
from torchcaps.ops.triton.runtime import check_available
from torchcaps.ops.triton.votes import Votes, fits, shared_out
from torchcaps.types import Routed, VoteMap

__all__ = ["em_routing"]


def em_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents, with the options, values and gradients of
    `ops.fused.em_routing`."""
    votes = vote_like(vote_map)
    check_available(votes.device)
    if not fits(vote_map):
        return fused.em_routing(vote_map, **options)
    return route(Kernels, vote_map, **options)


class Kernels:
    """The steps by kernels."""

    def __init__(self, votes: MadeOf):
        self.votes = votes.in_one_batch()
        self.n_out = votes.weight.shape[-3]

    def fit(self, log_r: Tensor | None, log_a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        joint = log_a.unsqueeze(-1)
        joint = joint if log_r is None else log_r + joint
        share, mass = joint.softmax(2), joint.exp().sum(2)
        share, mass = (x.expand(*x.shape[:-1], self.n_out) for x in (share, mass))
        mean, variance, _ = moments(Shared(share, self.votes))
        return mass, mean, variance

    def assign(
        self, likely: Tensor, mean: Tensor, variance: Tensor, wants_seen: bool
    ) -> tuple[Tensor, Tensor | None]:
        logits = likely.unsqueeze(2) - distances(Met(mean, variance, self.votes)) / 2
        seen = logits.logsumexp(-1) if wants_seen else None
        return logits.log_softmax(-1), seen

    def laid_out(self, log_r: Tensor) -> Tensor:
        return log_r


def _moments_of(
    votes: Votes, share: Tensor, mean: Tensor | None, variance: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Σ_i w_ij e_ij and, from a mean, Σ_i w_ij e_ij², [b, j, d]."""
    from torchcaps.ops.triton import em_kernels

    splits, size = votes.by_lane(tiles.CHILDREN, votes.tiles)
    first = votes.parents(splits)
    second = None if mean is None else votes.parents(splits)
    votes.run(
        em_kernels.moments,
        splits * votes.tiles * votes.lanes,
        *(*votes.made_of(), share, mean, variance, first, second),
        *(*votes.sizes(), size),
        **votes.constants(),
    )
    summed = first.sum(0)
    return summed, summed if second is None else second.sum(0)


def _slopes(
    votes: Votes,
    share: Tensor | None,
    mean: Tensor,
    alpha: Tensor | None,
    nu: Tensor,
    of_share: Tensor | None,
    needs: Sequence[bool],
) -> list[Tensor | None]:
    """∂w to `of_share`, and the gradients of pose, weight, bias and coordinates; a bias moves
    parents and nothing else."""
    from torchcaps.ops.triton import em_kernels

    splits, size = votes.by_child()
    gradients = votes.gradients([*needs[:2], False, needs[3]])
    of_pose, of_weight, _, of_coordinates = gradients
    programs = splits * votes.shape.types
    # Gradients are summed over samples, each by one program.
    parts, lanes = (1, votes.lanes) if any(needs) else shared_out(votes.lanes, programs, 1)
    for tile in range(votes.tiles):
        votes.run(
            em_kernels.slopes,
            parts * programs,
            *(*votes.made_of(), share, mean, alpha, nu),
            *(of_share, of_pose, of_weight, of_coordinates),
            *(*votes.sizes(), size, lanes * votes.blocks.lanes, tile * votes.blocks.parents),
            **votes.constants(),
            ADDS=tile > 0,
        )
    return votes.gathered(gradients)


def _moments(given: Shared) -> Moments:
    """Of weights [b, p, i, j]."""
    found = _moments_shapes(given)
    if not given.share.numel():
        return found
    votes, share = Votes(given.votes), given.share.contiguous()
    mean, _ = _moments_of(votes, share, None, None)
    rest, variance = _moments_of(votes, share, mean, None)
    return Moments(*(x.view(found.mean.shape) for x in (mean, variance, rest)))


def _moments_shapes(given: Shared) -> Moments:
    samples, windows, _, parents, size = given.votes.counts()
    return Moments(*(given.share.new_empty((samples, windows, parents, size)) for _ in range(3)))


def _moments_backward(asked: Asked[Shared]) -> Gradients:
    (share, made_of), (mean, rest), needs = asked.given, asked.saved, asked.needs
    of_mean, of_variance, _ = asked.gradients
    if not share.numel():
        return [None] * len(needs)
    of_variance = torch.zeros_like(mean) if of_variance is None else of_variance.contiguous()
    alpha = -2 * of_variance * rest
    alpha = alpha if of_mean is None else of_mean + alpha
    votes = Votes(made_of)
    of_share = votes.empty(*share.shape) if needs[0] else None
    numbers = (share.contiguous(), mean.contiguous(), alpha.contiguous(), of_variance)
    return [of_share, *_slopes(votes, *numbers, of_share, needs[1:])]


def _distances(given: Met) -> Tensor:
    """Σ_h (V_ij − μ_j)² / σ_j², [b, p, i, j]."""
    distances = _distances_shapes(given)
    if distances.numel():
        nu = given.variance.reciprocal().contiguous()
        numbers = (None, given.mean.contiguous(), None, nu, distances)
        _slopes(Votes(given.votes), *numbers, (False,) * 4)
    return distances


def _distances_shapes(given: Met) -> Tensor:
    samples, windows, children, parents, _ = given.votes.counts()
    return given.mean.new_empty((samples, windows, children, parents))


def _distances_backward(asked: Asked[Met]) -> Gradients:
    (of_distances,), needs = asked.gradients, asked.needs
    assert of_distances is not None
    if not of_distances.numel():
        return [None] * len(needs)
    votes = Votes(asked.given.votes)
    mean, variance, of_distances = (x.contiguous() for x in (*asked.given[:2], of_distances))
    first, second = _moments_of(votes, of_distances, mean, variance)
    of_made: Gradients = [None] * 4
    if any(needs[2:]):
        nu = variance.reciprocal()
        of_made = _slopes(votes, of_distances, mean, None, nu, None, needs[2:])
    return [-2 * first, -second, *of_made]


moments = Operator(
    "torchcaps::triton_em_moments",
    forward=_moments,
    shapes=_moments_shapes,
    backward=_moments_backward,
    saves=[0, 2],
    what="Triton EM routing",
    instead=by_stored_votes("em_routing"),
)
distances = Operator(
    "torchcaps::triton_em_distances",
    forward=_distances,
    shapes=_distances_shapes,
    backward=_distances_backward,
    what="Triton EM routing",
    instead=by_stored_votes("em_routing"),
)
