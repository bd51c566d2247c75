"""Routing algorithms, one a file: pure functions from votes [*b, i, j, d] to `Routed`."""

from torchcaps.ops.routing.conv3d import SquashOver, conv3d_routing
from torchcaps.ops.routing.distance import DetachVotes, Scale, distance_routing
from torchcaps.ops.routing.dynamic import Detach, dynamic_routing
from torchcaps.ops.routing.em import EMVariant, LambdaSchedule, em_routing
from torchcaps.ops.routing.inverted import inverted_routing, inverted_step
from torchcaps.ops.routing.self_attention import self_attention_routing
from torchcaps.ops.routing.self_routing import self_routing
from torchcaps.ops.routing.shared_children import Compete
from torchcaps.ops.routing.uniform import Normalise, uniform_routing

__all__ = [
    "Compete",
    "Detach",
    "DetachVotes",
    "EMVariant",
    "LambdaSchedule",
    "Normalise",
    "Scale",
    "SquashOver",
    "conv3d_routing",
    "distance_routing",
    "dynamic_routing",
    "em_routing",
    "inverted_routing",
    "inverted_step",
    "self_attention_routing",
    "self_routing",
    "uniform_routing",
]
