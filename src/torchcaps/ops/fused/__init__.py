"""The routings from a vote map: the same parents and gradients as from the votes, which are never
stored."""

from torchcaps.ops.fused import cost  # noqa: F401
from torchcaps.ops.fused.dynamic import dynamic_routing
from torchcaps.ops.fused.em import em_routing
from torchcaps.ops.fused.inverted import inverted_routing, inverted_step
from torchcaps.ops.fused.uniform import uniform_routing

__all__ = ["dynamic_routing", "em_routing", "inverted_routing", "inverted_step", "uniform_routing"]
