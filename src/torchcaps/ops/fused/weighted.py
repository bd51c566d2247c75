"""Sums of votes for couplings that are given, from a vote map: the votes are never stored.

    s_j = Σ_i c_ij û_ij

with gradients of what votes are made of and of couplings: the last iteration of any routing once
more, with couplings that somebody changed. `route` is the loop that may end so.
"""

from collections.abc import Callable

from torch import Tensor

from torchcaps.ops.checks import check_broadcast, check_votes, without_autocast
from torchcaps.ops.fused.loop import Loop, given
from torchcaps.ops.fused.mixing import mix
from torchcaps.ops.fused.results import kept_of, routed
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.routing.couple import recorded
from torchcaps.types import Couple, Keep, Routed, VoteMap


def weighted_sums(vote_map: VoteMap, coupling: Tensor) -> Tensor:
    """Give sums [*b, j, d], or [*b, p, j, d] through a window, of the votes of a vote map.

    Arguments:
        vote_map: what the votes are made of.
        coupling: the weight of every vote, [*b, i, j], or [*b, p, i, j] through a window; whatever
            broadcasts to that. Nothing is asked of their sums.

    >>> from torchcaps import Capsules
    >>> vote_map = VoteMap(Capsules(torch.ones(16, 8)), torch.ones(16, 10, 4, 8))
    >>> weighted_sums(vote_map, torch.full((16, 10), 0.5))[0]
    tensor([64., 64., 64., 64.])
    """
    votes = vote_like(vote_map)
    check_votes(votes)
    check_broadcast("coupling", coupling, votes.shape[:-1], "[*batch, child, parent]")
    sums = sums_of(vote_map, votes, coupling)
    return sums.reshape(*votes.shape[:-3], *votes.shape[-2:]).to(votes.dtype)


def sums_of(vote_map: VoteMap, votes: Tensor, coupling: Tensor) -> Tensor:
    """Compute the sums of checked arguments, [b, p, j, d] as wide as operators count; `votes` tells
    shape and dtype."""
    return mix(given(vote_map, votes, Loop(), added=coupling)).last


def route(
    vote_map: VoteMap,
    votes: Tensor,
    loop: Loop,
    pose_of: Callable[[Tensor], Tensor],
    keep: Keep,
    couple: Couple | None,
    *,
    activations: bool = True,
    **parameters: Tensor | None,
) -> Routed:
    """Route by a loop, whose sums become poses by `pose_of`; parameters are those of `given`."""
    record = recorded(keep, couple)
    loop = loop._replace(kept=kept_of(record, loop.iterations))
    with without_autocast(votes):
        mixed = mix(given(vote_map, votes, loop, **parameters))
        return routed(
            votes,
            [pose_of(s) for s in mixed.sums(record)],
            mixed.couplings,
            keep,
            couple,
            lambda coupling: pose_of(sums_of(vote_map, votes, coupling)),
            activations=activations,
        )
