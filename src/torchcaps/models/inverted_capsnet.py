"""Capsules with inverted dot-product attention [tsai2020] §3, Tables 8–11.

tsai_inverted    backbone – 32 primary types by a 1×1 convolution and LayerNorm – 32 types by 3×3
                 windows, stride 2 – 32 types by 3×3 windows – [`hidden` capsules] – classes – one
                 linear map of a class pose to its logit, the same for all classes
tsai_dmm_*       two convolutions of 1024 channels – 16 types × 64 – 16 types by 3×3 windows –
                 classes, any number of which are present: DiverseMultiMNIST

All layers route at once (`schedule`, ablation B), poses are normalised (`layer_norm`, ablation A)
and carry no activations (`activations`, ablation C).

Departures: none known; published sizes are met, with the affine part of each LayerNorm on top.
Ambiguities:
1. Agreements are not divided by √d in the text; public code does: `scaled`.
2. Weights start as N(0, J / (√d · children of a window)), for vector poses d in place of √d, from
   public code.
3. CapsNet* of Fig. 5, "vector" with dynamic routing: squash in place of LayerNorm, one layer after
   the other, class lengths as probabilities.
4. The enlarged matrix network of Fig. 5 is not described: tsai_dmm_matrix_42m has 64 types in
   place of 16, which makes 41.6M parameters.
5. `start` and `dropout` are those of `layers.InvertedRouting`: footnote 1, and what public code can
   do and leaves at 0.
6. Poses of 36 and 64 components stand for the "larger pose dimension" of §5.
"""

import math
from typing import Any, Literal

from torch import nn

from torchcaps._checks import check_choice
from torchcaps.layers import (
    ConvCapsules,
    DenseCapsules,
    LayerNormPrimaryCapsules,
    PrimaryCapsules,
    feature_shape,
    resnet_backbone,
    simple_backbone,
)
from torchcaps.layers.capsule_layer import Pose
from torchcaps.layers.schedule import Schedule
from torchcaps.models.initialise import Init
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.preset import CIFAR, OVERLAID, hands_on, listed
from torchcaps.models.stack import assembled, routed_by
from torchcaps.types import Grid

# Of a hundred classes.
OF_100: dict[str, Any] = {"width": 128, "d_pose": 36, "hidden": 20}


@listed("tsai_inverted_simple_c10", CIFAR, 10, "tsai2020 Table 8")
@listed("tsai_inverted_simple_c10_d36", CIFAR, 10, "tsai2020 §5", d_pose=36)
@listed("tsai_inverted_simple_c10_d64", CIFAR, 10, "tsai2020 §5", d_pose=64)
@listed("tsai_inverted_resnet_c10", CIFAR, 10, "tsai2020 A.1", backbone="resnet", width=128)
@listed("tsai_inverted_simple_c100", CIFAR, 100, "tsai2020 Table 9", **OF_100)
@listed("tsai_inverted_resnet_c100", CIFAR, 100, "tsai2020 A.1", backbone="resnet", **OF_100)
@hands_on("iterations schedule layer_norm scaled activations start dropout", routing="inverted")
def tsai_inverted(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    backbone: Literal["simple", "resnet"] = "simple",
    width: int = 256,
    types: int = 32,
    d_pose: int = 16,
    hidden: int = 0,
    schedule: Schedule = "concurrent",
    activations: bool = False,
    primary_bias: bool = True,
    **of_routing: Any,
) -> CapsuleNetwork:
    """Make the network; `width` is how many channels the backbone ends with; `hidden` capsules save
    parameters where there are many classes."""
    check_choice("backbone", backbone, ("simple", "resnet"))
    make_backbone = simple_backbone if backbone == "simple" else resnet_backbone
    below = make_backbone(image[0], width=width)
    primary = LayerNormPrimaryCapsules(
        nn.Conv2d(width, types * d_pose, 1, bias=primary_bias),
        nn.Conv2d(width, types, 1) if activations else None,
        d_out=d_pose,
    )
    _, height, width = feature_shape(nn.Sequential(below, primary.projection), image)
    layers = _layers(
        (height, width, types),
        d_pose,
        windows={"conv_1": (types, 2), "conv_2": (types, 1)},
        dense=({"hidden": hidden} if hidden else {}) | {"classes": n_classes},
        routing="inverted",
        pose="matrix",
        activations=activations,
        **of_routing,
    )
    if activations:
        # The head reads poses alone, so nothing would ever teach the activations of the classes.
        top = layers["classes"].routing
        for beta in (top.get_parameter("beta_a"), top.get_parameter("beta_u")):
            beta.requires_grad_(False)
    return assembled(image, below, primary, layers, head=True, schedule=schedule)


@listed("tsai_dmm_matrix", OVERLAID, 10, "tsai2020 Table 10")
@listed("tsai_dmm_matrix_42m", OVERLAID, 10, "tsai2020 Fig. 5", types=64)
@listed("tsai_dmm_vector", OVERLAID, 10, "tsai2020 Table 11", pose="vector")
@hands_on("iterations schedule layer_norm scaled start dropout", routing="inverted")
def tsai_dmm(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    pose: Pose = "matrix",
    types: int = 16,
    d_pose: int = 64,
    schedule: Schedule = "concurrent",
    **of_routing: Any,
) -> CapsuleNetwork:
    return _dmm(
        LayerNormPrimaryCapsules,
        image,
        n_classes,
        types,
        d_pose,
        {"routing": "inverted", "pose": pose} | of_routing,
        head=True,
        head_scores="independent_logits",
        schedule=schedule,
    )


@listed("tsai_dmm_vector_dynamic", OVERLAID, 10, "tsai2020 Fig. 5, CapsNet*")
@hands_on("iterations agreement")
def tsai_dmm_vector_dynamic(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    types: int = 16,
    d_pose: int = 64,
    routing: str = "dynamic",
    init: Init = "paper",
    **of_routing: Any,
) -> CapsuleNetwork:
    routed = {"routing": routing, "pose": "vector", "squash": "hinton"} | of_routing
    return _dmm(PrimaryCapsules, image, n_classes, types, d_pose, routed, init=init)


def _dmm(
    kind: type[PrimaryCapsules | LayerNormPrimaryCapsules],
    image: tuple[int, int, int],
    n_classes: int,
    types: int,
    d_pose: int,
    routed: dict[str, Any],
    **parts: Any,
) -> CapsuleNetwork:
    """Make a network for overlaid digits: one layer of windows below the classes."""
    backbone = simple_backbone(image[0], 1024)
    primary = kind(nn.Conv2d(1024, types * d_pose, 3, stride=2), d_out=d_pose)
    _, height, width = feature_shape(nn.Sequential(backbone, primary.projection), image)
    grid, windows = (height, width, types), {"conv_1": (types, 1)}
    layers = _layers(grid, d_pose, windows=windows, dense={"classes": n_classes}, **routed)
    return assembled(image, backbone, primary, layers, **parts)


def _layers(
    grid: Grid,
    d_pose: int,
    *,
    windows: dict[str, tuple[int, int]],
    dense: dict[str, int],
    routing: str,
    pose: Pose,
    bias: bool = False,
    **of_routing: Any,
) -> dict[str, ConvCapsules | DenseCapsules]:
    """Make the layers; `windows` are 3×3, (types, stride); `dense` layers have so many capsules."""
    layers: dict[str, ConvCapsules | DenseCapsules] = {}
    # What one component of a vote sums over.
    summed = math.isqrt(d_pose) if pose == "matrix" else d_pose
    for name, (types, stride) in windows.items():
        layer = ConvCapsules(
            child_grid=grid,
            d_in=d_pose,
            types=types,
            d_out=d_pose,
            kernel=3,
            stride=stride,
            pose=pose,
            weight_std=math.sqrt(types / (summed * 9 * grid[2])),
            **routed_by(routing, bias=bias, **of_routing),
        )
        layers[name], grid = layer, layer.parent_grid
    n_in = math.prod(grid)
    for name, n_out in dense.items():
        layers[name] = DenseCapsules(
            n_in=n_in,
            d_in=d_pose,
            n_out=n_out,
            d_out=d_pose,
            pose=pose,
            child_grid=grid if name == next(iter(dense)) else None,
            weight_std=math.sqrt(n_out / (summed * n_in)),
            **routed_by(routing, bias=bias, **of_routing),
        )
        n_in = n_out
    return layers
