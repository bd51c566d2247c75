"""Capsules on a backbone that others have trained, and a linear head on the same as their twin.

capsules_on_backbone   the last maps of the backbone – types × 8 primary capsules by a 1×1
                       convolution, squash – n_classes × 16 class capsules
linear_on_backbone     the mean over the same maps – FC(classes)

`backbone` is resnet18, resnet34, resnet50 [he2016] or timm:NAME;
`weights` "random", "pretrained" (what torch.hub or the Hugging Face hub keeps in the user's cache;
by timm what it finds or fetches) or a file. Images are normalised as the backbone's were. With a
thousand classes linear_on_backbone has the parameters that its papers and torchvision count:
11,689,512, 21,797,672 and 25,557,032.

Departures: ours, for pictures of one's own. The stride of a bottleneck is in its 3×3 convolution,
as in public code, not in its first 1×1.
"""

from typing import Any

from torch import Tensor, nn

from torchcaps.layers import PrimaryCapsules, feature_shape
from torchcaps.models.convnets import Plain
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.preset import hands_on, listed
from torchcaps.models.pretrained import make_backbone
from torchcaps.models.stack import stacked
from torchcaps.ops.squashing import Squash
from torchcaps.types import Output

PICTURES = (3, 224, 224)


@listed("capsules_on_backbone", PICTURES, 10, "ours")
@hands_on("iterations bias agreement")
def capsules_on_backbone(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    routing: str = "dynamic",
    bias: bool = False,
    backbone: str = "resnet18",
    weights: str = "random",
    types: int = 8,
    d_primary: int = 8,
    d_class: int = 16,
    class_squash: Squash = "hinton",
    weight_std: float = 0.1,
    **of_routing: Any,
) -> CapsuleNetwork:
    maps = make_backbone(backbone, image[0])
    projection = nn.Conv2d(feature_shape(maps, image)[0], types * d_primary, 1)
    return stacked(
        image,
        maps,
        PrimaryCapsules(projection, d_out=d_primary),
        {"classes": (n_classes, d_class)},
        routing=routing,
        bias=bias,
        squash=class_squash,
        weight_std=weight_std,
        **of_routing,
    )


@listed("linear_on_backbone", PICTURES, 10, "ours, a control")
class LinearOnBackbone(Plain):
    """The mean over the maps of a backbone, and one linear map of it."""

    def __init__(
        self,
        *,
        image: tuple[int, int, int],
        n_classes: int,
        backbone: str = "resnet18",
        weights: str = "random",
    ):
        super().__init__()
        self.image = image
        self.backbone = make_backbone(backbone, image[0])
        self.head = nn.Linear(feature_shape(self.backbone, image)[0], n_classes)

    def _answer(self, image: Tensor, target: Tensor | None) -> Output:
        return Output(self.head(self.backbone(image).mean((-2, -1))), "logits")
