"""Two of the fused routings in C++: the same parents and gradients, compiled at their first use.

Where no compiler is found, or a call has an option that a kernel lacks, the fused form in PyTorch
routes instead.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torchcaps.ops.native import dynamic, em
from torchcaps.ops.native.build import available as available
from torchcaps.ops.native.dynamic import dynamic_routing as dynamic_routing
from torchcaps.ops.native.em import em_routing as em_routing
from torchcaps.types import Routed, VoteMap

ROUTINGS: dict[str, Callable[..., Routed]] = {
    "dynamic": dynamic_routing,
    "em": em_routing,
}
_TAKES: dict[str, Callable[[VoteMap, Mapping[str, Any]], bool]] = {
    "dynamic": dynamic.takes,
    "em": em.takes,
}


def takes(algorithm: str, vote_map: VoteMap, options: Mapping[str, Any]) -> bool:
    """Whether a kernel routes these votes with these options; the fused form routes all others."""
    return algorithm in _TAKES and _TAKES[algorithm](vote_map, options)
