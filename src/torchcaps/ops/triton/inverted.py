"""Inverted routing from a vote map by Triton kernels, those of `ops.triton.mixing`.

The algorithm, its papers, its options and its ambiguities are those of `ops.inverted_routing`.

Departures: no activations (ablation C), as in the fused form; others are those of
`ops.triton.dynamic`.
Ambiguities: none.
"""

from typing import Any

from torch import Tensor

from torchcaps.ops.fused import inverted
from torchcaps.ops.triton.mixing import mix
from torchcaps.types import Routed, Step, VoteMap

__all__ = ["inverted_routing", "inverted_step"]


def inverted_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents, with the options, values and gradients of
    `ops.fused.inverted_routing`."""
    return inverted.route_by(mix, vote_map, **options)


def inverted_step(vote_map: VoteMap, parents: Tensor | None, **options: Any) -> Step:
    """One iteration from the present parents, as in `ops.fused.inverted_step`."""
    return inverted.step_by(mix, vote_map, parents, **options)
