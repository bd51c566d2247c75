"""CapsNet of [sabour2017] as [gu2021] §3, [renzulli2025] §4.2 and [tsai2020] Table 4 use it.

Conv(256, 9×9, stride 1) ReLU – 32 types × 8 primary capsules by Conv(256, 9×9, stride 2), squash –
n_classes × 16 class capsules by dynamic routing – decoder FC 512, 1024, pixels.

capsnet                  as in [sabour2017]
gu_capsnet               a ReLU before the primary squash, as [gu2021] §3 reads; `kernel` is Table 3
gu_capsnet_nor           its votes averaged: no routing
gu_aff_capsnet_dr        its matrices shared by all children (sharing="all")
gu_aff_capsnet           both; `types` with `d_primary` = 256 / types is its group study
rem_dr                   no decoder, votes constant in all but the last iteration [renzulli2025];
                         with types=1 and trunk="resnet18_imagenet" that of Tiny ImageNet, C.3
tsai_dynamic_simple_*    no decoder [tsai2020] Tables 4 and 5
tsai_dynamic_resnet_*    the same on a residual backbone [tsai2020] A.1

`d_class`, the components of a class capsule, gives the shared matrices more weights: a control for
the question whether [gu2021] §3.2 measures routing or capacity. `width` is that of the first
convolution; less than 256 is ours, for a quick trunk.

Departures: none from the papers; unlike the code of [sabour2017] there is no division by 32 in the
primary layer, and no orphan class for CIFAR: DynamicRouting(leaky=True) in a layer of one's own.
That code cuts every draw off at 2 σ, with σ = 0.05 in the first convolution and 0.1 in all other
weights, and has all biases at 0.1; here convolutions and the decoder start as PyTorch's do, and
class matrices as N(0, `weight_std`²), not cut off.
Ambiguities:
1. A ReLU before the primary squash: `primary_relu`. [gu2021] has all convolutions followed by one,
   the code of [sabour2017] and of [renzulli2025] has none.
2. The class bias: off, as in every formula; the code of [sabour2017] and of [renzulli2025] has one
   that starts at 0.1, and the printed parameter counts fit both. `bias=True` turns it on.
3. No routing is "uniform average of votes" in [gu2021] §3.1, so the mean over children
   (normalise="mean"); [mitterreiter2023] fixes couplings, the mean over parents ("softmax").
4. "Squash-fn ✗" in [gu2021] Tables 2 and 4 does not say which: `primary_squash`, `class_squash`.
5. The literal text of [tsai2020] A.1 gives 4.65M parameters for dynamic routing on the residual
   backbone; the printed 12.45M needs 256 channels and a padded primary convolution, as here.
"""

from typing import Any, Literal

from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers import Decoder, PrimaryCapsules, resnet_backbone, sabour_backbone
from torchcaps.layers.backbone import rectified
from torchcaps.layers.convolution import LargeConv2d
from torchcaps.layers.decoder import Mask
from torchcaps.layers.dense import Sharing
from torchcaps.layers.trunk import WIDTH as MAPS
from torchcaps.layers.trunk import FrozenTrunk
from torchcaps.models.initialise import Init
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.preset import CIFAR, SMALL, WIDE, hands_on, listed
from torchcaps.models.stack import stacked
from torchcaps.ops.squashing import Squash

D_CLASS = 16
# One convolution that is trained, or a ResNet-18 that is not.
Trunk = Literal["convolution", "resnet18", "resnet18_imagenet"]
# Votes are averaged.
NO_ROUTING: dict[str, Any] = {"routing": "uniform", "normalise": "mean"}


@listed("capsnet", SMALL, 10, "sabour2017; gu2021 §3; renzulli2025 §4.2")
@listed("gu_capsnet", WIDE, 10, "gu2021 §3, Table 3", primary_relu=True)
@listed("gu_capsnet_nor", WIDE, 10, "gu2021 §3.1", primary_relu=True, **NO_ROUTING)
@listed("gu_aff_capsnet_dr", WIDE, 10, "gu2021 §3.1", primary_relu=True, sharing="all")
@listed("gu_aff_capsnet", WIDE, 10, "gu2021 §3.1", primary_relu=True, sharing="all", **NO_ROUTING)
@listed("rem_dr", SMALL, 10, "renzulli2025 §4.2", detach="votes", decoder=False)
@listed("tsai_dynamic_simple_c10", CIFAR, 10, "tsai2020 Table 4", decoder=False)
@listed("tsai_dynamic_simple_c100", CIFAR, 100, "tsai2020 Table 5", decoder=False)
@hands_on("iterations bias normalise detach agreement")
def capsnet(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    routing: str = "dynamic",
    bias: bool = False,
    sharing: Sharing = "none",
    kernel: int = 9,
    types: int = 32,
    d_primary: int = 8,
    d_class: int = D_CLASS,
    width: int = 256,
    trunk: Trunk = "convolution",
    primary_relu: bool = False,
    primary_squash: Squash = "hinton",
    class_squash: Squash = "hinton",
    weight_std: float = 0.1,
    init: Init = "paper",
    decoder: bool = True,
    mask: Mask = "class",
    **of_routing: Any,
) -> CapsuleNetwork:
    maps, n_maps = _trunk(trunk, image[0], kernel, width)
    projection = rectified(LargeConv2d(n_maps, types * d_primary, kernel, stride=2), primary_relu)
    return stacked(
        image,
        maps,
        PrimaryCapsules(projection, d_out=d_primary, squash=primary_squash),
        {"classes": (n_classes, d_class)},
        routing=routing,
        bias=bias,
        sharing=sharing,
        squash=class_squash,
        weight_std=weight_std,
        init=init,
        decoder=decoder and Decoder(n_classes=n_classes, d_in=d_class, image=image, mask=mask),
        **of_routing,
    )


def _trunk(trunk: Trunk, channels: int, kernel: int, width: int) -> tuple[nn.Module, int]:
    """Give what makes the maps that primary capsules are made of, and how many maps there are."""
    if trunk == "convolution":
        return sabour_backbone(channels, kernel=kernel, width=width), width
    if width != 256:
        raise TorchcapsError(
            f"width={width} sets the convolution before the primary capsules, which "
            f'trunk="{trunk}" replaces; leave width out.'
        )
    return FrozenTrunk(channels, trunk), MAPS


@listed("tsai_dynamic_resnet_c10", CIFAR, 10, "tsai2020 A.1")
@listed("tsai_dynamic_resnet_c100", CIFAR, 100, "tsai2020 A.1")
@hands_on("iterations bias agreement")
def tsai_dynamic_resnet(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    routing: str = "dynamic",
    bias: bool = False,
    primary_relu: bool = False,
    weight_std: float = 0.1,
    init: Init = "paper",
    **of_routing: Any,
) -> CapsuleNetwork:
    projection = rectified(LargeConv2d(256, 256, 9, stride=2, padding=4), primary_relu)
    return stacked(
        image,
        resnet_backbone(image[0], width=256),
        PrimaryCapsules(projection, d_out=8),
        {"classes": (n_classes, D_CLASS)},
        routing=routing,
        bias=bias,
        weight_std=weight_std,
        init=init,
        **of_routing,
    )
