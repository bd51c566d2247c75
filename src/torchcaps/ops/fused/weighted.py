"""Sums of votes for couplings that are given, from a vote map: the votes are never stored.

    s_j = Σ_i c_ij û_ij

with gradients of what votes are made of and of couplings: the last iteration of any routing once
more, with couplings that somebody changed.
"""

from torch import Tensor

from torchcaps.ops.checks import check_broadcast, check_votes
from torchcaps.ops.fused.mixing import Given, mix
from torchcaps.ops.fused.results import by_sample
from torchcaps.ops.fused.tiles import made_of, vote_like
from torchcaps.types import VoteMap


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
    added = by_sample(coupling, votes[..., 0], vote_map.window)
    return mix(Given(made_of(vote_map, votes), added=added)).sums
