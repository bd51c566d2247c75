"""The fused routings in C++: the same parents and gradients, compiled at their first use.

Where no compiler is found, or a call has an option that a kernel lacks, the fused form in PyTorch
routes instead.
"""

from torchcaps.ops.native import cost  # noqa: F401, it registers what the operators cost
from torchcaps.ops.native.build import available
from torchcaps.ops.native.distance import distance_routing
from torchcaps.ops.native.dynamic import dynamic_routing
from torchcaps.ops.native.em import em_routing
from torchcaps.ops.native.inverted import inverted_routing, inverted_step
from torchcaps.ops.native.self_attention import self_attention_routing

__all__ = [
    "available",
    "distance_routing",
    "dynamic_routing",
    "em_routing",
    "inverted_routing",
    "inverted_step",
    "self_attention_routing",
]
