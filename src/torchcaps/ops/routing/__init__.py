"""Routing algorithms, one a file: pure functions from votes [*b, i, j, d] to `Routed`."""

from torchcaps.ops.routing.dynamic import Detach, dynamic_routing
from torchcaps.ops.routing.uniform import Normalise, uniform_routing

__all__ = ["Detach", "Normalise", "dynamic_routing", "uniform_routing"]
