"""From a trace to labelled numbers. Nothing here knows what a model is."""

from torchcaps.analysis.activity import (
    Activity,
    LayerActivity,
    MeasureActivity,
    Thresholds,
    capsule_activity,
)
from torchcaps.analysis.dynamics import (
    LayerDynamics,
    MeasureDynamics,
    RoutingDynamics,
    routing_dynamics,
)
from torchcaps.analysis.keys import ClassKeys, Keys, MeasureKeys, key_entropy
from torchcaps.analysis.measure import Measurement, measure
from torchcaps.analysis.quantise import quantise
from torchcaps.analysis.trace import capsule_layers, join, lengths

__all__ = [
    "Activity",
    "ClassKeys",
    "Keys",
    "LayerActivity",
    "LayerDynamics",
    "MeasureActivity",
    "MeasureDynamics",
    "MeasureKeys",
    "Measurement",
    "RoutingDynamics",
    "Thresholds",
    "capsule_activity",
    "capsule_layers",
    "join",
    "key_entropy",
    "lengths",
    "measure",
    "quantise",
    "routing_dynamics",
]
