"""Self-attention routing from a vote map: the votes are made tile by tile, in both passes, never
stored.

The algorithm, its papers, its options and its ambiguities are those of
`ops.self_attention_routing`. With T_j = Σ_i û_ij, one sum,

    c_ij = softmax_j(⟨û_ij, T_j⟩ / √D) + bias_ij,     s_j = Σ_i c_ij û_ij,     v_j = g(s_j)

which are two sums of `ops.fused.mixing`, the first with couplings of one.

Departures: half precision votes are not rounded before they are routed, as a vote tensor is; they
are made in float32, and only parents and couplings are rounded.
Ambiguities: none.
"""

import math
from typing import Any

from torchcaps.ops.checks import without_autocast
from torchcaps.ops.fused.mixing import Given, mix
from torchcaps.ops.fused.results import by_sample, routed
from torchcaps.ops.fused.rules import squashed
from torchcaps.ops.fused.tiles import made_of, vote_like
from torchcaps.ops.fused.weighted import sums_of
from torchcaps.ops.routing.couple import recorded
from torchcaps.ops.routing.self_attention import SelfAttentionOptions, check_self_attention
from torchcaps.types import Routed, VoteMap


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
    made = made_of(vote_map, votes).widened()
    bias = by_sample(asked.bias, votes[..., 0], vote_map.window)
    record = recorded(asked.keep, asked.couple) != "none"
    with without_autocast(votes):
        query = mix(Given(made, share=1.0)).sums / math.sqrt(votes.shape[-1])
        found = mix(Given(made, query, added=bias, record=record))
        return routed(
            votes,
            [squashed(found.sums, asked.squash)],
            [found.couplings],
            asked.keep,
            asked.couple,
            lambda coupling: squashed(sums_of(vote_map, votes, coupling), asked.squash),
        )
