"""Dynamic routing from a vote map by Triton kernels, those of `ops.triton.mixing`.

The algorithm, its papers and its options are those of `ops.dynamic_routing`.

Departures: votes of half precision are products of half precision summed in float32 and not rounded
themselves; gradients of votes are rounded to half precision before they are multiplied with poses
and weights, as they are where votes are stored. float32 is multiplied in full precision, unless
torch.set_float32_matmul_precision allows TensorFloat-32. float64 goes the fused way, as do priors
that differ between samples, and poses so large that the weights of one pair have more than 8192
numbers.
Ambiguities: none.
"""

from typing import Any

from torchcaps.ops.fused import dynamic
from torchcaps.ops.triton.mixing import mix
from torchcaps.types import Routed, VoteMap

__all__ = ["dynamic_routing"]


def dynamic_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents, with the options, values and gradients of
    `ops.fused.dynamic_routing`."""
    return dynamic.route_by(mix, vote_map, **options)
