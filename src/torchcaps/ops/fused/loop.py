"""Routings whose couplings are a softmax over parents of how far votes agree with a query.

    q_1 = start, or none
    for t = 1 … T:
        c_ij = softmax_j(⟨û_ij, q_tj⟩ + prior_ij)      `share` without query and prior
        s_tj = Σ_i (c_ij + added_ij) û_ij              `ops.fused.mixing`
        q_{t+1} = rule(q_t, pose(s_t))                 of parents alone

so between iterations only parents live, and autograd goes through these. Sums are an operator, with
γ_j, the gradient of s_j, and κ_ij, that of the coupling where it was recorded,

    h_ij  = ⟨û_ij, γ_j⟩ + κ_ij = ∂added_ij     ∂b_ij = c_ij (h_ij − Σ_k c_ik h_ik) = ∂prior_ij
    ∂û_ij = (c_ij + added_ij) γ_j + ∂b_ij q_j  ∂q_j  = Σ_i ∂b_ij û_ij

`detach` leaves some of these terms out. No gradient of the gradient.
"""

from collections.abc import Callable

from torch import Tensor

from torchcaps.ops.checks import without_autocast
from torchcaps.ops.fused.mixing import Given, mix
from torchcaps.ops.fused.results import by_sample, routed
from torchcaps.ops.fused.tiles import made_of
from torchcaps.ops.fused.weighted import sums_of
from torchcaps.ops.routing.couple import recorded
from torchcaps.types import Couple, Keep, Routed, VoteMap


def route(
    vote_map: VoteMap,
    votes: Tensor,
    pose_of: Callable[[Tensor], Tensor],
    query_of: Callable[[Tensor | None, Tensor], Tensor],
    *,
    keep: Keep,
    couple: Couple | None,
    share: float,
    iterations: int = 1,
    prior: Tensor | None = None,
    start: Tensor | None = None,
    leaky: bool = False,
    detach: str = "none",
    activations: bool = True,
) -> Routed:
    """Route by checked arguments; `votes` tells shape and dtype. Sums [b, p, j, d] become poses by
    `pose_of`, and a query and these the next query by `query_of`."""
    record, window, like = recorded(keep, couple), vote_map.window, votes[..., 0, :, :]
    prior = by_sample(prior, votes[..., 0], window)
    query = by_sample(None if start is None else start.expand_as(like), like, window)
    # Wide, since autograd adds up the gradients of all iterations.
    made = made_of(vote_map, votes).widened()
    poses, couplings = [], []
    with without_autocast(votes):
        for t in range(iterations):
            last = t == iterations - 1
            if detach == "coupling" and query is not None:
                query = query.detach()
            found = mix(
                Given(
                    made.detached() if detach == "votes" and not last else made,
                    query,
                    prior,
                    share=share,
                    leaky=leaky,
                    detach=detach,
                    record=record == "steps" or (record == "last" and last),
                )
            )
            pose = pose_of(found.sums)
            if record == "steps" or last:
                poses.append(pose)
                couplings.append(found.couplings)
            if not last:
                query = query_of(query, pose.detach() if detach == "states" else pose)
        return routed(
            votes,
            poses,
            couplings,
            keep,
            couple,
            lambda coupling: pose_of(sums_of(vote_map, votes, coupling)),
            activations=activations,
        )
