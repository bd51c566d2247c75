"""Networks with self-routing [hahn2019]: every capsule of the map chooses a class by its own pose.

hahn_sr_resnet20   a ResNet-20 of 16, 32 and 64 channels – 32 types × 16 on its 8×8 map – classes
hahn_sr_convnet    six 3×3 convolutions of 16, 32, 32, 64, 64 and 128 channels, three of stride 2 –
                   16 types × 16 on its 4×4 map – classes

Poses and activations of the primary capsules come from a 3×3 convolution each, with a batch
normalisation, and activations pass a sigmoid. The classes' activations sum to one, and scores are
their logarithms: cross-entropy is the likelihood of the paper. 931,664 weights, and 479,312 on one
channel and five classes, are those of its code.

Departures: a class capsule has a pose, the mean of its children's, for those who look at it; in the
code it has none. No score depends on it, and it has no weights.
Ambiguities:
1. Shortcuts of the ResNet that change the size leave out every other position and add channels of
   zeros, as in the code. `types` and `d_pose` are options of its command line.
2. First weights of convolutions: by He's rule for uniform numbers, as in the code.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from torchcaps.layers import DenseCapsules, EMPrimaryCapsules, feature_shape, residual_backbone
from torchcaps.layers.backbone import normalised
from torchcaps.layers.routing.self_routing import SelfRouting
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.preset import CIFAR, listed
from torchcaps.types import Capsules, ScoresAre


class SelfRoutingNetwork(CapsuleNetwork):
    """A network whose classes score by the logarithm of their activation."""

    def _score(self, classes: Capsules) -> tuple[Tensor, ScoresAre]:
        scores, _ = super()._score(classes)
        return scores.clamp_min(torch.finfo(scores.dtype).tiny).log(), "logits"


class _Padded(nn.Module):
    """Every other position, with as many channels of zeros as there are."""

    def forward(self, features: Tensor) -> Tensor:
        half = features.shape[1] // 2
        return pad(features[..., ::2, ::2], (0, 0, 0, 0, half, half))


@listed("hahn_sr_resnet20", CIFAR, 10, "hahn2019")
def hahn_sr_resnet20(
    *, image: tuple[int, int, int], n_classes: int, types: int = 32, d_pose: int = 16
) -> SelfRoutingNetwork:
    maps = residual_backbone(image[0], (16, 3), (32, 3), (64, 3))
    for block in maps:
        if len(getattr(block, "shortcut", ())):
            block.shortcut = _Padded()
    return _network(image, n_classes, maps, types, d_pose)


@listed("hahn_sr_convnet", (1, 32, 32), 5, "hahn2019")
def hahn_sr_convnet(
    *, image: tuple[int, int, int], n_classes: int, types: int = 16, d_pose: int = 16
) -> SelfRoutingNetwork:
    parts: list[nn.Module] = []
    channels = image[0]
    for width, stride in ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2)):
        parts += [*normalised(channels, width, 3, stride), nn.ReLU(inplace=True)]
        channels = width
    return _network(image, n_classes, nn.Sequential(*parts), types, d_pose)


def _network(
    image: tuple[int, int, int], n_classes: int, maps: nn.Module, types: int, d_pose: int
) -> SelfRoutingNetwork:
    channels, height, width = feature_shape(maps, image)
    pose, activation = (nn.Sequential(*normalised(channels, types * n, 3, 1)) for n in (d_pose, 1))
    grid = (height, width, types)
    classes = DenseCapsules(
        n_in=height * width * types,
        d_in=d_pose,
        n_out=n_classes,
        d_out=d_pose,
        sharing="all",
        child_grid=grid,
        routing=SelfRouting(),
    )
    # A vote is the pose itself; nobody trains that.
    del classes.weight
    classes.register_buffer("weight", torch.eye(d_pose).repeat(n_classes, 1, 1))
    network = SelfRoutingNetwork(
        image=image,
        backbone=maps,
        primary=EMPrimaryCapsules(pose, activation, d_out=d_pose),
        primary_grid=grid,
        layers={"classes": classes},
    )
    for each in network.modules():
        if isinstance(each, nn.Conv2d):
            nn.init.kaiming_uniform_(each.weight)
    return network
