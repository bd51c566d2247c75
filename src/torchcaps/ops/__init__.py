"""Pure functions on tensors: squash, votes, routing, losses. No parameters, no state."""

from torchcaps.ops.losses import margin_loss, reconstruction_loss
from torchcaps.ops.routing import dynamic_routing, uniform_routing
from torchcaps.ops.squash import squash
from torchcaps.ops.votes import materialise

__all__ = [
    "dynamic_routing",
    "margin_loss",
    "materialise",
    "reconstruction_loss",
    "squash",
    "uniform_routing",
]
