"""The routings from a vote map: the same parents and gradients as from the votes, which are never
stored."""

from collections.abc import Callable, Mapping
from typing import Any

from torchcaps.ops.fused.distance import distance_routing as distance_routing
from torchcaps.ops.fused.dynamic import dynamic_routing as dynamic_routing
from torchcaps.ops.fused.em import em_routing as em_routing
from torchcaps.ops.fused.inverted import inverted_routing as inverted_routing
from torchcaps.ops.fused.self_attention import self_attention_routing as self_attention_routing
from torchcaps.ops.fused.uniform import uniform_routing as uniform_routing
from torchcaps.ops.fused.weighted import weighted_sums as weighted_sums
from torchcaps.ops.routing.inverted import InvertedOptions
from torchcaps.types import Routed, VoteMap

# By the names that layers know.
ROUTINGS: dict[str, Callable[..., Routed]] = {
    "distance": distance_routing,
    "dynamic": dynamic_routing,
    "em": em_routing,
    "inverted": inverted_routing,
    "self_attention": self_attention_routing,
    "uniform": uniform_routing,
}


def takes(algorithm: str, vote_map: VoteMap, options: Mapping[str, Any]) -> bool:
    """Say whether a routing of this name has a form without stored votes that knows these
    options."""
    if algorithm == "inverted":
        # Not those of activations, ablation C.
        return options.keys() <= set(InvertedOptions._fields)
    return algorithm in ROUTINGS
