"""Self-attention routing from a vote map: the votes are made tile by tile, in both passes, never
stored.

The algorithm, its papers, its options and its ambiguities are those of
`ops.self_attention_routing`. With T_j = Σ_i û_ij, one sum,

    c_ij = softmax_j(⟨û_ij, T_j⟩ / √D) + bias_ij,     s_j = Σ_i c_ij û_ij,     v_j = g(s_j)

which are two iterations of `ops.fused.loop`, the first with couplings of one.

Departures: half precision votes are not rounded before they are routed, as a vote tensor is; they
are made in float32, and only parents and couplings are rounded.
Ambiguities: none.
"""

import math
from functools import partial
from typing import Any

from torchcaps.ops.fused.loop import Loop
from torchcaps.ops.fused.rules import squashed
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.fused.weighted import route
from torchcaps.ops.routing.self_attention import SelfAttentionOptions, check_self_attention
from torchcaps.types import Keep, Routed, VoteMap


def self_attention_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents [*b, j, d], or [*b, p, j, d] through a window, with
    the options, values and gradients of `ops.self_attention_routing` of the materialised votes.

    >>> from torchcaps import Capsules
    >>> vote_map = VoteMap(Capsules(torch.ones(16, 8)), torch.ones(16, 10, 16, 8))
    >>> self_attention_routing(vote_map).parents.pose.shape
    torch.Size([10, 16])
    """
    votes, asked = vote_like(vote_map), SelfAttentionOptions(**options)
    check_self_attention(votes, asked)
    loop = Loop("present", scale=1 / math.sqrt(votes.shape[-1]), iterations=2, share=1.0)
    ends = partial(squashed, kind=asked.squash)
    # The sum before is no step of this routing.
    keep: Keep = "none" if asked.keep == "none" else "last"
    return route(vote_map, votes, loop, ends, keep, asked.couple, added=asked.bias)
