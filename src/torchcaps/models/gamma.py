"""γ-CapsNet: scaled-distance-agreement routing [peer2018], [renzulli2025] §4.2.

The trunk of CapsNet, 32 types × 8 – 32 hidden capsules × 8 – n_classes × 16, both layers routed by
distance with a bias – decoder that sees all class capsules, nothing masked.

gamma_capsnet  as [peer2018]
rem_gamma      no decoder; all but the last iteration is constant, as in the code of
               [renzulli2025], which runs it without gradients

Distances are measured over the batch in training, as in public code, and their running mean is used
in evaluation, so that no result depends on its neighbours there. 7,730,336 parameters on MNIST
without the decoder, 416 of them biases: the 7.7M of [renzulli2025] Table 9.

Departures: none known.
Ambiguities:
1. [renzulli2025] B.3 speaks of the first two and the last two capsule layers; there are three, as
   in [peer2018].
2. No paper says whether a ReLU precedes the primary squash; `primary_relu`, off as in public code.
"""

from typing import Any

from torchcaps.layers import PrimaryCapsules, sabour_backbone
from torchcaps.layers.backbone import rectified
from torchcaps.layers.convolution import LargeConv2d
from torchcaps.models.initialise import Init
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.preset import SMALL, hands_on, listed
from torchcaps.models.stack import stacked
from torchcaps.ops.routing import DetachVotes, Scale

D_PRIMARY, D_HIDDEN, D_CLASS = 8, 8, 16
N_HIDDEN = 32


@listed("gamma_capsnet", SMALL, 10, "peer2018")
@listed("rem_gamma", SMALL, 10, "renzulli2025 §4.2", detach="iterations", decoder=False)
@hands_on("iterations scale bias detach")
def gamma_capsnet(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    routing: str = "distance",
    scale: Scale = "batch",
    bias: bool = True,
    detach: DetachVotes = "none",
    primary_relu: bool = False,
    weight_std: float = 0.1,
    init: Init = "paper",
    decoder: bool = True,
    **of_routing: Any,
) -> CapsuleNetwork:
    if routing != "distance" and detach == "iterations":
        # Of rem_gamma, where nobody says otherwise: no other routing holds iterations constant.
        detach = "none"
    backbone = sabour_backbone(image[0])
    projection = rectified(LargeConv2d(256, 256, 9, stride=2), primary_relu)
    return stacked(
        image,
        backbone,
        PrimaryCapsules(projection, d_out=D_PRIMARY),
        {"hidden": (N_HIDDEN, D_HIDDEN), "classes": (n_classes, D_CLASS)},
        decoder=decoder,
        mask="none",
        weight_std=weight_std,
        init=init,
        routing=routing,
        scale=scale,
        bias=bias,
        detach=detach,
        **of_routing,
    )
