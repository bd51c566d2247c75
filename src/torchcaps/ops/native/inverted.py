"""Inverted routing from a vote map by a native kernel, that of `ops.native.mixing`.

The algorithm, its papers, its options and its ambiguities are those of `ops.inverted_routing`.

Departures: no activations (ablation C), as in the fused form. Numbers are float32, so float64 goes
the fused way, as do vote biases, other devices, and every call where there is no native library.
Ambiguities: none.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from torchcaps.ops.fused import inverted
from torchcaps.ops.native.mixing import mix
from torchcaps.ops.native.reach import reaches
from torchcaps.types import Routed, Step, VoteMap

__all__ = ["inverted_routing", "inverted_step", "takes"]


def inverted_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents, with the options, values and gradients of
    `ops.fused.inverted_routing`."""
    return inverted.route_by(mix, vote_map, **options)


def inverted_step(vote_map: VoteMap, parents: Tensor | None, **options: Any) -> Step:
    """One iteration from the present parents, as in `ops.fused.inverted_step`."""
    return inverted.step_by(mix, vote_map, parents, **options)


def takes(vote_map: VoteMap, options: Mapping[str, Any]) -> bool:
    """Whether the kernel sums these votes, whatever the options."""
    return vote_map.bias is None and reaches(vote_map)
