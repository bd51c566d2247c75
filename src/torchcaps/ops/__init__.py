"""Pure functions on tensors: squash, votes, routing, losses. No parameters, no state."""

from torchcaps.ops import costs  # noqa: F401, it registers what the operators cost
from torchcaps.ops.by_name import route
from torchcaps.ops.losses import (
    binary_cross_entropy_loss,
    cross_entropy_loss,
    focal_loss,
    margin_loss,
    reconstruction_loss,
    spread_loss,
    spread_margin,
)
from torchcaps.ops.routing import (
    conv3d_routing,
    distance_routing,
    dynamic_routing,
    em_routing,
    inverted_routing,
    inverted_step,
    self_attention_routing,
    self_routing,
    uniform_routing,
)
from torchcaps.ops.squashing import squash
from torchcaps.ops.votes import materialise

__all__ = [
    "binary_cross_entropy_loss",
    "conv3d_routing",
    "cross_entropy_loss",
    "distance_routing",
    "dynamic_routing",
    "em_routing",
    "focal_loss",
    "inverted_routing",
    "inverted_step",
    "margin_loss",
    "materialise",
    "reconstruction_loss",
    "route",
    "self_attention_routing",
    "self_routing",
    "spread_loss",
    "spread_margin",
    "squash",
    "uniform_routing",
]
