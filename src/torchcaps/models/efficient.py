"""Networks on the small trunk of Efficient-CapsNet [mazzia2021], as [renzulli2025] uses them.

efficient_capsnet  four convolutions – a depthwise one over the whole map, 16 capsules × 8 –
                   n_classes × 16 by self-attention, one pass – decoder
rem_eff_*          the same without a decoder [renzulli2025] §4.3.1; "norb" has a trunk for stereo
                   pairs
efficient_convnet  ours: the control of efficient_capsnet without a decoder: its trunk, then FC
                   ReLU FC with as many weights as its class capsules, logits
rem_effconv        for larger images [renzulli2025] B.1: Conv(32, 5, 2) Conv(64, 3, 1)
                   Conv(64, 3, 1) Conv(256, 3, 2) – depthwise Conv(256, 3, 1), 16 types × 16 – 16
                   types by 3×3 windows, stride 2 – classes with one matrix for all children;
                   dynamic routing; no decoder unless asked for

Sizes: 161,824 without the decoder for MNIST and 151,664 for smallNORB, those of its code; the first
is the 161k of [renzulli2025] Table 9.

Departures: the instance normalisation of rem_eff_norb starts at one and zero, in the code of
[mazzia2021] at numbers drawn evenly near zero. Its decoders start as He and Glorot normal, ours as
PyTorch's layers do, and that for smallNORB draws by convolutions on a map that is made larger,
where efficient_capsnet(stereo=True) has the fully connected one.
Ambiguities:
1. As in the code of [mazzia2021] convolutions start as He normal and the one over the whole map as
   Glorot uniform; class matrices as He normal, whose fan-in counts all children and parents. Of
   rem_effconv, which has no code, all convolutions start as He normal.
2. The convolutions of rem_effconv: ReLU and batch normalisation like the others, no padding; squash
   exp; three iterations; votes constant in all but the last, as other code of [renzulli2025].
"""

import math
from typing import Any

from torch import nn

from torchcaps.layers import (
    ConvCapsules,
    DenseCapsules,
    PrimaryCapsules,
    efficient_backbone,
    efficient_norb_backbone,
    feature_shape,
    whole_map,
)
from torchcaps.layers.convolution import WholeMapConv2d
from torchcaps.models.convnets import ConvNet
from torchcaps.models.initialise import Init
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.preset import CIFAR, SMALL, hands_on, listed
from torchcaps.models.stack import assembled, routed_by
from torchcaps.ops.routing import Detach

D_PRIMARY, D_CLASS = 8, 16


@listed("efficient_capsnet", SMALL, 10, "mazzia2021")
@listed("rem_eff_mnist", SMALL, 10, "renzulli2025 §4.3.1", decoder=False)
@listed("rem_eff_cifar", CIFAR, 10, "renzulli2025 §4.3.1", decoder=False)
@listed("rem_eff_svhn", CIFAR, 10, "renzulli2025 §4.3.1", decoder=False)
@listed("rem_eff_norb", (2, 48, 48), 5, "renzulli2025 §4.3.1", stereo=True, decoder=False)
@hands_on("iterations bias")
def efficient_capsnet(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    routing: str = "self_attention",
    bias: bool = False,
    stereo: bool = False,
    init: Init = "paper",
    decoder: bool = True,
    **of_routing: Any,
) -> CapsuleNetwork:
    backbone = efficient_norb_backbone(image[0]) if stereo else efficient_backbone(image[0])
    channels, height, width = feature_shape(backbone, image)
    primary = PrimaryCapsules(whole_map(channels, height, width), d_out=D_PRIMARY, squash="exp")
    n_in = channels // D_PRIMARY
    # What [mazzia2021] adds to the attention; the other routings begin as they do by themselves.
    prior = {"prior": "learned"} if routing == "self_attention" else {}
    options = {"squash": "exp"} | prior | of_routing
    classes = DenseCapsules(
        n_in=n_in,
        d_in=D_PRIMARY,
        n_out=n_classes,
        d_out=D_CLASS,
        weight_std=math.sqrt(2 / (n_in * n_classes * D_PRIMARY)),
        **routed_by(routing, bias=bias, **options),
    )
    as_published(backbone, primary)
    return assembled(image, backbone, primary, {"classes": classes}, init=init, decoder=decoder)


@listed("efficient_convnet", SMALL, 10, "ours, a control")
def efficient_convnet(*, image: tuple[int, int, int], n_classes: int) -> ConvNet:
    backbone = efficient_backbone(image[0])
    channels, height, width = feature_shape(backbone, image)
    features = nn.Sequential(backbone, whole_map(channels, height, width), nn.Flatten())
    as_published(features)
    # Matrices and learned priors of the class capsules, whose place two linear layers take.
    routed = channels // D_PRIMARY * n_classes * (D_PRIMARY * D_CLASS + 1)
    hidden = max(1, round((routed - n_classes) / (channels + 1 + n_classes)))
    head = nn.Sequential(nn.Linear(channels, hidden), nn.ReLU(), nn.Linear(hidden, n_classes))
    return ConvNet(image=image, features=features, head=head, scores_are="logits")


@listed("rem_effconv", (3, 128, 128), 10, "renzulli2025 B.1")
@hands_on("iterations bias detach agreement")
def rem_effconv(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    routing: str = "dynamic",
    bias: bool = False,
    detach: Detach = "votes",
    weight_std: float = 0.1,
    init: Init = "paper",
    decoder: bool = False,
    **of_routing: Any,
) -> CapsuleNetwork:
    d_pose, types = 16, 16
    backbone = efficient_backbone(image[0], widths=(32, 64, 64, 256), strides=(2, 1, 1, 2))
    depthwise = nn.Conv2d(256, 256, 3, groups=256)
    primary = PrimaryCapsules(depthwise, d_out=d_pose, squash="exp")
    _, height, width = feature_shape(nn.Sequential(backbone, depthwise), image)
    options = {"squash": "exp", "detach": detach} | of_routing
    windows = ConvCapsules(
        child_grid=(height, width, types),
        d_in=d_pose,
        types=types,
        d_out=d_pose,
        kernel=3,
        stride=2,
        weight_std=weight_std,
        **routed_by(routing, bias=bias, **options),
    )
    classes = DenseCapsules.after(
        windows,
        n_out=n_classes,
        d_out=d_pose,
        sharing="all",
        weight_std=weight_std,
        **routed_by(routing, bias=bias, **options),
    )
    as_published(backbone, primary)
    layers = {"conv_1": windows, "classes": classes}
    return assembled(image, backbone, primary, layers, init=init, decoder=decoder)


def as_published(*modules: nn.Module) -> None:
    """Start the convolutions in modules as the code of [mazzia2021] does: He normal; the one over
    the whole map, for which it names no start, Glorot uniform as Keras has it by itself, with a
    fan-out as if a channel reached all channels."""
    for module in modules:
        for part in module.modules():
            if not isinstance(part, nn.Conv2d):
                continue
            if isinstance(part, WholeMapConv2d):
                bound = math.sqrt(6 / (part.weight[0].numel() * (1 + part.out_channels)))
                nn.init.uniform_(part.weight, -bound, bound)
            else:
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
            if part.bias is not None:
                nn.init.zeros_(part.bias)
