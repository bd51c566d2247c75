"""From a trace to labelled numbers. Nothing here knows what a model is."""

from torchcaps.analysis.activity import Activity, LayerActivity, Thresholds, capsule_activity
from torchcaps.analysis.dynamics import LayerDynamics, RoutingDynamics, routing_dynamics
from torchcaps.analysis.trace import capsule_layers, join, lengths

__all__ = [
    "Activity",
    "LayerActivity",
    "LayerDynamics",
    "RoutingDynamics",
    "Thresholds",
    "capsule_activity",
    "capsule_layers",
    "join",
    "lengths",
    "routing_dynamics",
]
