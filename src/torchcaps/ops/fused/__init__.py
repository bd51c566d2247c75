"""The routings from a vote map: the same parents and gradients as from the votes, which are never
stored."""

from torchcaps.ops.fused import cost  # noqa: F401, it registers what the operators cost
from torchcaps.ops.fused.distance import distance_routing
from torchcaps.ops.fused.dynamic import dynamic_routing
from torchcaps.ops.fused.em import em_routing
from torchcaps.ops.fused.inverted import inverted_routing, inverted_step
from torchcaps.ops.fused.self_attention import self_attention_routing
from torchcaps.ops.fused.uniform import uniform_routing

__all__ = [
    "distance_routing",
    "dynamic_routing",
    "em_routing",
    "inverted_routing",
    "inverted_step",
    "self_attention_routing",
    "uniform_routing",
]
