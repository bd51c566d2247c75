"""Self-attention routing from a vote map by a native kernel, that of `ops.native.mixing`.

The algorithm, its papers and its options are those of `ops.self_attention_routing`.

Departures: those of `ops.native.inverted`. What has no kernel there goes the fused way.
Ambiguities: none.
"""

from collections.abc import Mapping
from typing import Any

from torchcaps.ops.fused import self_attention
from torchcaps.ops.fused.results import speak_for_all_samples
from torchcaps.ops.native.mixing import mix
from torchcaps.ops.native.reach import reaches
from torchcaps.types import Routed, VoteMap

__all__ = ["self_attention_routing", "takes"]


def self_attention_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents, with the options, values and gradients of
    `ops.fused.self_attention_routing`."""
    return self_attention.route_by(mix, vote_map, **options)


def takes(vote_map: VoteMap, options: Mapping[str, Any]) -> bool:
    """Whether the kernel sums these votes with these options."""
    return (
        vote_map.bias is None and speak_for_all_samples(options.get("bias")) and reaches(vote_map)
    )
