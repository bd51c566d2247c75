"""Three of the fused routings in C++: the same parents and gradients, compiled at their first use.

Where no compiler is found, or a call has an option that a kernel lacks, the fused form in PyTorch
routes instead.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torchcaps.ops.native import distance, dynamic
from torchcaps.ops.native.build import available as available
from torchcaps.ops.native.distance import distance_routing as distance_routing
from torchcaps.ops.native.dynamic import dynamic_routing as dynamic_routing
from torchcaps.ops.native.em import em_routing as em_routing
from torchcaps.ops.native.reach import reaches
from torchcaps.types import Routed, VoteMap

ROUTINGS: dict[str, Callable[..., Routed]] = {
    "distance": distance_routing,
    "dynamic": dynamic_routing,
    "em": em_routing,
}


def takes(algorithm: str, vote_map: VoteMap, options: Mapping[str, Any]) -> bool:
    """Say whether a kernel routes these votes with these options, that of EM routing with any; the
    fused form routes all others."""
    if algorithm not in ROUTINGS:
        return False
    its = {"distance": distance, "dynamic": dynamic}.get(algorithm)
    return reaches(vote_map) if its is None else its.takes(vote_map, options)
