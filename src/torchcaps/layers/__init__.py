"""Modules that own weights: backbones, capsule layers, routings, decoder."""

from torchcaps.layers.backbone import efficient_backbone, feature_shape, sabour_backbone
from torchcaps.layers.decoder import Decoder
from torchcaps.layers.dense import DenseCapsules
from torchcaps.layers.primary import PrimaryCapsules
from torchcaps.layers.routing import ROUTINGS, DynamicRouting, Routing, UniformRouting, make_routing

__all__ = [
    "ROUTINGS",
    "Decoder",
    "DenseCapsules",
    "DynamicRouting",
    "PrimaryCapsules",
    "Routing",
    "UniformRouting",
    "efficient_backbone",
    "feature_shape",
    "make_routing",
    "sabour_backbone",
]
