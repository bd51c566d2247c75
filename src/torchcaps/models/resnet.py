"""ResNet-18 for small images, as [tsai2020] Table 1 compares it with capsule networks.

Conv 64 norm ReLU – stages of two residual blocks with 64, 128, 256 and 512 channels, each but the
first halving the map – mean over the map – FC(classes). On three channels it has 11,173,962
parameters for ten classes and 11,220,132 for a hundred: 11.17M and 11.22M, as printed.

Departures: none known.
Ambiguities: [tsai2020] names the network only. Here the first convolution keeps the size and no
pooling follows it, as usual for 32×32 pixels; that is what the printed sizes ask for.
"""

from torchcaps.layers.backbone import residual_backbone
from torchcaps.models.convnets import ConvNet, averaged
from torchcaps.models.preset import CIFAR, listed


@listed("resnet18", CIFAR, 10, "tsai2020 Table 1")
@listed("tsai_resnet18_c100", CIFAR, 100, "tsai2020 Table 1")
def resnet18(*, image: tuple[int, int, int], n_classes: int) -> ConvNet:
    maps = residual_backbone(image[0], (64, 2), (128, 2), (256, 2), (512, 2))
    return averaged(image, maps, n_classes, "logits")
