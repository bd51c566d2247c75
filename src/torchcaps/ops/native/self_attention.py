"""Self-attention routing from a vote map by native kernels: votes live in registers.

The algorithm, its papers and its options are those of `ops.self_attention_routing`. It is made of
the sums of native inverted routing, as `ops.fused.attention_by_sums` has it.

Departures: those of `ops.native.inverted`. What has no kernel there goes the fused way, as do
biases that differ between samples.
Ambiguities: none.
"""

from typing import Any

from torchcaps.ops.fused import attention_by_sums
from torchcaps.ops.native.inverted import _sums_of, takes
from torchcaps.types import Routed, VoteMap

__all__ = ["self_attention_routing", "takes"]


def self_attention_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents, with the options, values and gradients of
    `ops.fused.self_attention_routing`."""
    return attention_by_sums.route(_sums_of(vote_map), vote_map, **options)
