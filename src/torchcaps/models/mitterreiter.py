"""The deep networks of [mitterreiter2023] §4.1; [renzulli2025] B.1 draws the same shape.

Backbone – 16 primary capsules × 8 – three hidden layers of 16 × 8 – n_classes × 8, so four routed
layers with learned priors and exp squash; decoder. Its uniform twin is `routing="uniform"`: the
same weights drawn, couplings fixed.

mitterreiter_5x16   that network
mitterreiter_grid   the grid of 121 architectures in the missing appendix, as options: `widths` are
                    the capsules of every layer below the classes, from the primary one up, `d_pose`
                    their components. The narrow twin is uniform with as many capsules in a layer as
                    the other has alive: widths="16,15,7,6".
mhsa_stack          mitterreiter_5x16 whose hidden layers are multi-head self-attention, §5; classes
                    by uniform couplings, since attention keeps the number of capsules
rem_multilayer      the network of [renzulli2025] B.1: the same layers, priors zero, hinton squash,
                    votes constant in all but the last iteration, no decoder

`lambda_`, `variant` and `unit_poses` are those of EM routing. head=True reads every class pose by
one linear map, the same for all, so that inverted attention, which gives no activations, fits too.

`grid_of_121()` enumerates 121 networks of mitterreiter_grid, ours: the paper has as many, in an
appendix that is not public.

Departures: none known; the appendix that would tell is not public.
Ambiguities:
1. Backbone: that of Efficient-CapsNet [mazzia2021], then a depthwise convolution over the whole
   map, and a linear map where the capsules do not fill its channels.
2. Iterations: 3.
3. Initial weights: N(0, `weight_std`²) with 1.0, at which both twins learn. At 0.1, the custom for
   one routed layer and what public code of [renzulli2025] has, lengths vanish from layer to layer
   and the network stays at chance.
4. A ReLU before the primary squash: `primary_relu`, off; none is mentioned.
5. [renzulli2025] does not say how its multilayer network is routed; it is their DR-CapsNet, deeper.
"""

import itertools
from typing import Any, Literal

from torch import nn

from torchcaps.errors import TorchcapsError, short
from torchcaps.layers import (
    AttentionCapsules,
    DenseCapsules,
    PrimaryCapsules,
    UniformRouting,
    efficient_backbone,
    feature_shape,
    whole_map,
)
from torchcaps.layers.backbone import rectified
from torchcaps.models.initialise import Init
from torchcaps.models.limits import check_layers
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.options import SQUASHES
from torchcaps.models.preset import SMALL, WIDE, hands_on, listed
from torchcaps.models.stack import assembled, stacked
from torchcaps.ops.squashing import Squash

# Ours: 6 depths × 4 numbers of capsules × 5 of components, and one layer routed from as many
# primary capsules as [sabour2017] has, which the shallow models "resemble".
HIDDEN_AND_PRIMARY, CAPSULES, COMPONENTS = range(1, 7), (8, 16, 24, 32), (4, 6, 8, 12, 16)
SHALLOW = 1152


def grid_of_121() -> tuple[dict[str, Any], ...]:
    """Give 121 networks of various depths, numbers of capsules and of components, as options.

    >>> len(grid_of_121())
    121
    """
    grid = itertools.product(HIDDEN_AND_PRIMARY, CAPSULES, COMPONENTS)
    deeper = ({"widths": ",".join([str(n)] * depth), "d_pose": d} for depth, n, d in grid)
    return {"widths": str(SHALLOW), "d_pose": 8}, *deeper


@listed("mitterreiter_grid", WIDE, 10, "mitterreiter2023 §4, appendix", shared=SQUASHES)
@listed(
    "rem_multilayer",
    SMALL,
    10,
    "renzulli2025 B.1",
    shared=SQUASHES,
    prior="zero",
    squash="hinton",
    detach="votes",
    decoder=False,
)
@hands_on("iterations bias prior squash detach agreement lambda_ variant unit_poses")
def mitterreiter_grid(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    widths: str = "16,16,16,16",
    d_pose: int = 8,
    routing: str = "dynamic",
    bias: bool = False,
    prior: Literal["zero", "learned"] = "learned",
    squash: Squash = "exp",
    primary_relu: bool = False,
    weight_std: float = 1.0,
    init: Init = "paper",
    head: bool = False,
    decoder: bool = True,
    **of_routing: Any,
) -> CapsuleNetwork:
    n_primary, *hidden = _counts(widths)
    backbone, projection = _trunk(image, n_primary * d_pose)
    sizes = {f"hidden_{depth}": (n, d_pose) for depth, n in enumerate(hidden, start=2)}
    return stacked(
        image,
        backbone,
        PrimaryCapsules(rectified(projection, primary_relu), d_out=d_pose, squash=squash),
        sizes | {"classes": (n_classes, d_pose)},
        head=head,
        decoder=decoder,
        weight_std=weight_std,
        routing=routing,
        bias=bias,
        prior=prior,
        squash=squash,
        init=init,
        **of_routing,
    )


@listed("mitterreiter_5x16", WIDE, 10, "mitterreiter2023 §4.1; renzulli2025 B.1")
@hands_on("iterations bias agreement")
def mitterreiter_5x16(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    routing: str = "dynamic",
    bias: bool = False,
    primary_relu: bool = False,
    weight_std: float = 1.0,
    init: Init = "paper",
    decoder: bool = True,
    **of_routing: Any,
) -> CapsuleNetwork:
    return mitterreiter_grid(
        image=image,
        n_classes=n_classes,
        routing=routing,
        bias=bias,
        primary_relu=primary_relu,
        weight_std=weight_std,
        init=init,
        decoder=decoder,
        **of_routing,
    )


@listed("mhsa_stack", WIDE, 10, "mitterreiter2023 §5, Table 3")
def mhsa_stack(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    n_layers: int = 5,
    n_capsules: int = 16,
    d_pose: int = 8,
    heads: int = 1,
    weight_std: float = 1.0,
    decoder: bool = True,
) -> CapsuleNetwork:
    """Make the network; `n_layers` counts the primary and the class capsules."""
    check_layers(n_layers)
    backbone, projection = _trunk(image, n_capsules * d_pose)
    hidden = {
        f"hidden_{depth}": AttentionCapsules(n=n_capsules, d=d_pose, heads=heads)
        for depth in range(2, n_layers)
    }
    classes = DenseCapsules(
        n_in=n_capsules,
        d_in=d_pose,
        n_out=n_classes,
        d_out=d_pose,
        weight_std=weight_std,
        routing=UniformRouting(squash="exp"),
    )
    primary = PrimaryCapsules(projection, d_out=d_pose, squash="exp")
    return assembled(image, backbone, primary, hidden | {"classes": classes}, decoder=decoder)


def _trunk(image: tuple[int, int, int], channels: int) -> tuple[nn.Module, nn.Module]:
    """Give a backbone, and what makes one position of so many channels of its map."""
    backbone = efficient_backbone(image[0])
    found, height, width = feature_shape(backbone, image)
    projection: nn.Module = whole_map(found, height, width)
    if channels != found:
        projection = nn.Sequential(projection, nn.Conv2d(found, channels, 1))
    return backbone, projection


def _counts(widths: str) -> list[int]:
    try:
        counts = [int(width) for width in widths.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise TorchcapsError(
            f"widths must be the capsules of each layer below the classes, from the primary one "
            f"up, as in '16,16,16,16', but came as {short(widths)}."
        )
    return counts
