"""Modules that own weights: backbones, capsule layers, routings, decoder."""

from torchcaps._lazy import publish
from torchcaps.layers.attention import AttentionCapsules as AttentionCapsules
from torchcaps.layers.backbone import efficient_backbone as efficient_backbone
from torchcaps.layers.backbone import efficient_norb_backbone as efficient_norb_backbone
from torchcaps.layers.backbone import feature_shape as feature_shape
from torchcaps.layers.backbone import residual_backbone as residual_backbone
from torchcaps.layers.backbone import resnet_backbone as resnet_backbone
from torchcaps.layers.backbone import sabour_backbone as sabour_backbone
from torchcaps.layers.backbone import simple_backbone as simple_backbone
from torchcaps.layers.backbone import whole_map as whole_map
from torchcaps.layers.backbone import with_channels_last as with_channels_last
from torchcaps.layers.backend_switch import use_backend as use_backend
from torchcaps.layers.capsule_layer import CapsuleLayer as CapsuleLayer
from torchcaps.layers.conv import ConvCapsules as ConvCapsules
from torchcaps.layers.conv3d import Conv3dCapsules as Conv3dCapsules
from torchcaps.layers.decoder import Decoder as Decoder
from torchcaps.layers.decoder import DeconvDecoder as DeconvDecoder
from torchcaps.layers.dense import DenseCapsules as DenseCapsules
from torchcaps.layers.head import CapsuleHead as CapsuleHead
from torchcaps.layers.memory import can_keep_memory as can_keep_memory
from torchcaps.layers.memory import keep_memory as keep_memory
from torchcaps.layers.pretrained import PretrainedBackbone as PretrainedBackbone
from torchcaps.layers.primary import EMPrimaryCapsules as EMPrimaryCapsules
from torchcaps.layers.primary import LayerNormPrimaryCapsules as LayerNormPrimaryCapsules
from torchcaps.layers.primary import PrimaryCapsules as PrimaryCapsules
from torchcaps.layers.routing import ROUTINGS as ROUTINGS
from torchcaps.layers.routing import Routing as Routing
from torchcaps.layers.routing import make_routing as make_routing
from torchcaps.layers.routing import register_routing as register_routing
from torchcaps.layers.routing.distance import DistanceRouting as DistanceRouting
from torchcaps.layers.routing.dynamic import DynamicRouting as DynamicRouting
from torchcaps.layers.routing.em import EMRouting as EMRouting
from torchcaps.layers.routing.inverted import InvertedRouting as InvertedRouting
from torchcaps.layers.routing.self_attention import SelfAttentionRouting as SelfAttentionRouting
from torchcaps.layers.routing.self_routing import SelfRouting as SelfRouting
from torchcaps.layers.routing.uniform import UniformRouting as UniformRouting
from torchcaps.layers.schedule import route_concurrently as route_concurrently
from torchcaps.layers.schedule import route_sequentially as route_sequentially
from torchcaps.layers.schedule import steps_in_a_row as steps_in_a_row
from torchcaps.layers.trunk import FrozenTrunk as FrozenTrunk

publish(__name__)
