"""Modules that own weights: backbones, capsule layers, routings, decoder."""

from torchcaps.layers.attention import AttentionCapsules
from torchcaps.layers.backbone import (
    efficient_backbone,
    efficient_norb_backbone,
    feature_shape,
    residual_backbone,
    resnet_backbone,
    sabour_backbone,
    simple_backbone,
    whole_map,
    with_channels_last,
)
from torchcaps.layers.backend_switch import use_backend
from torchcaps.layers.capsule_layer import CapsuleLayer
from torchcaps.layers.conv import ConvCapsules
from torchcaps.layers.conv3d import Conv3dCapsules
from torchcaps.layers.decoder import Decoder, DeconvDecoder
from torchcaps.layers.dense import DenseCapsules
from torchcaps.layers.head import CapsuleHead
from torchcaps.layers.memory import can_keep_memory, keep_memory
from torchcaps.layers.pretrained import PretrainedBackbone
from torchcaps.layers.primary import (
    EMPrimaryCapsules,
    LayerNormPrimaryCapsules,
    PrimaryCapsules,
)
from torchcaps.layers.routing import ROUTINGS, Routing, make_routing, register_routing
from torchcaps.layers.routing.distance import DistanceRouting
from torchcaps.layers.routing.dynamic import DynamicRouting
from torchcaps.layers.routing.em import EMRouting
from torchcaps.layers.routing.inverted import InvertedRouting
from torchcaps.layers.routing.self_attention import SelfAttentionRouting
from torchcaps.layers.routing.self_routing import SelfRouting
from torchcaps.layers.routing.uniform import UniformRouting
from torchcaps.layers.schedule import route_concurrently, route_sequentially, steps_in_a_row
from torchcaps.layers.trunk import FrozenTrunk

__all__ = [
    "ROUTINGS",
    "AttentionCapsules",
    "CapsuleHead",
    "CapsuleLayer",
    "Conv3dCapsules",
    "ConvCapsules",
    "Decoder",
    "DeconvDecoder",
    "DenseCapsules",
    "DistanceRouting",
    "DynamicRouting",
    "EMPrimaryCapsules",
    "EMRouting",
    "FrozenTrunk",
    "InvertedRouting",
    "LayerNormPrimaryCapsules",
    "PretrainedBackbone",
    "PrimaryCapsules",
    "Routing",
    "SelfAttentionRouting",
    "SelfRouting",
    "UniformRouting",
    "can_keep_memory",
    "efficient_backbone",
    "efficient_norb_backbone",
    "feature_shape",
    "keep_memory",
    "make_routing",
    "register_routing",
    "residual_backbone",
    "resnet_backbone",
    "route_concurrently",
    "route_sequentially",
    "sabour_backbone",
    "simple_backbone",
    "steps_in_a_row",
    "use_backend",
    "whole_map",
    "with_channels_last",
]
