"""Uniform routing from a vote map: equal couplings turn all votes of a parent into one product.

    s_j = c Σ_i û_ij = c Σ_i W_ij u_i      and, where the children share weights,  c W_j Σ_i u_i

The papers, equations and options are those of `ops.uniform_routing`.

Departures: half precision votes are not rounded before they are summed, as a vote tensor is.
Ambiguities: none.
"""

from typing import get_args

from torch import Tensor

from torchcaps.ops.checks import check_broadcast, check_choice, check_keep, check_votes
from torchcaps.ops.fused.dynamic import route
from torchcaps.ops.fused.loop import Loop
from torchcaps.ops.fused.mixing import mix
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.routing.uniform import Normalise
from torchcaps.ops.squashing import Squash
from torchcaps.types import Couple, Keep, Routed, VoteMap

__all__ = ["uniform_routing"]


def uniform_routing(
    vote_map: VoteMap,
    *,
    normalise: Normalise = "softmax",
    bias: Tensor | None = None,
    squash: Squash = "hinton",
    keep: Keep = "none",
    couple: Couple | None = None,
) -> Routed:
    """Route the votes of a vote map to parents [*b, j, d], or [*b, p, j, d] through a window, with
    the values and gradients of `ops.uniform_routing` of the materialised votes."""
    votes = vote_like(vote_map)
    check_votes(votes)
    check_choice("normalise", normalise, get_args(Normalise))
    check_keep(keep)
    check_broadcast("bias", bias, (*votes.shape[:-3], *votes.shape[-2:]), "[*batch, parent, pose]")
    check_choice("squash", squash, get_args(Squash))
    *_, n_in, n_out, _ = votes.shape
    share = 1 / (n_out if normalise == "softmax" else n_in)
    loop = Loop("agreement", squash, share=share)
    return route(mix, vote_map, votes, loop, bias=bias, keep=keep, couple=couple)
