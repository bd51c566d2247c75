"""Self-attention routing from a vote map by Triton kernels, those of `ops.triton.mixing`.

The algorithm, its papers and its options are those of `ops.self_attention_routing`.

Departures: those of `ops.triton.dynamic`.
Ambiguities: none.
"""

from typing import Any

from torchcaps.ops.fused import self_attention
from torchcaps.ops.triton.mixing import mix
from torchcaps.types import Routed, VoteMap

__all__ = ["self_attention_routing"]


def self_attention_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents, with the options, values and gradients of
    `ops.fused.self_attention_routing`."""
    return self_attention.route_by(mix, vote_map, **options)
