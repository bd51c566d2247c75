"""The fused routings as Triton kernels, for GPUs: the same parents and gradients.

Triton is an extra, `pip install "torchcaps[triton]"`. What a kernel lacks, the fused form in
PyTorch does; distance routing has no kernels of its own here.
"""

from torchcaps.ops.fused import distance_routing
from torchcaps.ops.triton import cost  # noqa: F401, it registers what the operators cost
from torchcaps.ops.triton.dynamic import dynamic_routing
from torchcaps.ops.triton.em import em_routing
from torchcaps.ops.triton.inverted import inverted_routing, inverted_step
from torchcaps.ops.triton.runtime import available
from torchcaps.ops.triton.self_attention import self_attention_routing

__all__ = [
    "available",
    "distance_routing",
    "dynamic_routing",
    "em_routing",
    "inverted_routing",
    "inverted_step",
    "self_attention_routing",
]
