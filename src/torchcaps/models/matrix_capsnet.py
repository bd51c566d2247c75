"""Matrix capsules with EM routing [hinton2018], and the baselines that [tsai2020] makes of them.

matrix_capsnet       Conv(A, 5×5, stride 2) ReLU – B primary types by a 1×1 convolution – C types by
                     3×3 windows, stride 2 – D types by 3×3 windows – classes, whose matrices belong
                     to child types; coordinates tell them where a child is. `sizes` are A-B-C-D.
matrix_capsnet_mnist the same with two iterations, the variant of [gritzman2019], windows that route
                     alone, a constant λ and a batch normalisation after the stem: it learns
                     from the first hundred steps, where the former starts slowly
tsai_em_simple_*     Conv(256, 4×4, stride 2) norm ReLU – 32 types – 32 – 32 – classes [tsai2020]
                     Tables 6, 7
tsai_em_resnet_*     the same on a residual backbone [tsai2020] A.1

Poses are 4×4. Scores are activations.

Departures: matrix_capsnet has the parameters of its code, 316,650 at 32-32-32-32 and 68,618 at
64-8-16-16, on two channels and five classes, and with variant="official" its initial values; but
coordinates are shares of the grid in the right-hand column of a vote, where its code has pixels
over 100 in the first two components. With variant="gritzman" weights start as N(0, 1), which
its code cuts off at 2. What matrix_capsnet_mnist sets is ours; docs/routing/em.md says why. tsai_em
has one `weight_std` and one λ with every variant.
Ambiguities:
1. [tsai2020] does not say which EM routing: here Alg. 2 of [peer2022], two iterations, their best.
   It counts no β: with one pair a parent type 148 more parameters on CIFAR-10.
2. The class matrices of [tsai2020] are shared over positions, as the printed 0.45M say.
3. Coordinates in the class layer of [tsai2020]: as in [hinton2018].
"""

from typing import Any, Literal

from torch import nn

from torchcaps._checks import check_choice
from torchcaps.errors import TorchcapsError, short
from torchcaps.layers import (
    ConvCapsules,
    DenseCapsules,
    EMPrimaryCapsules,
    EMRouting,
    resnet_backbone,
    simple_backbone,
)
from torchcaps.layers.after import children_after
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.preset import CIFAR, SMALL, hands_on, listed
from torchcaps.models.stack import assembled
from torchcaps.ops.routing import Compete, EMVariant

D_POSE = 16


@listed("matrix_capsnet", (2, 32, 32), 5, "hinton2018")
@listed(
    "matrix_capsnet_mnist",
    SMALL,
    10,
    "hinton2018, gritzman2019",
    iterations=2,
    variant="gritzman",
    compete="window",
    lambda_=0.001,
    lambda_schedule="constant",
    norm=True,
)
@hands_on("iterations variant compete lambda_ lambda_schedule", routing="em")
def matrix_capsnet(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    sizes: str = "64-8-16-16",
    variant: EMVariant = "official",
    compete: Compete = "all",
    lambda_: float = 0.01,
    bias: bool = False,
    norm: bool = False,
    **of_routing: Any,
) -> CapsuleNetwork:
    a, b, c, d = _four(sizes)
    stem = nn.Conv2d(image[0], a, 5, stride=2)
    pose, activation = nn.Conv2d(a, b * D_POSE, 1, bias=False), nn.Conv2d(a, b, 1, bias=False)
    if variant == "official":
        nn.init.trunc_normal_(stem.weight, std=0.05, a=-0.1, b=0.1)
        assert stem.bias is not None
        nn.init.constant_(stem.bias, 0.1)
        nn.init.normal_(pose.weight, std=0.5)
        nn.init.normal_(activation.weight, std=3.0)
    primary = EMPrimaryCapsules(
        pose, activation, d_out=D_POSE, offset=-1.0 if variant == "official" else 0.0
    )
    return _network(
        image,
        n_classes,
        nn.Sequential(stem, *([nn.BatchNorm2d(a)] if norm else []), nn.ReLU(inplace=True)),
        primary,
        (c, d),
        variant=variant,
        compete=compete,
        # The code cools its class layer four times slower.
        lambdas=(lambda_, lambda_ / 4 if variant == "official" else lambda_),
        stds={"official": (0.3, 0.01), "gritzman": (1.0, 1.0)}.get(variant, (0.1, 0.1)),
        vote_bias=bias,
        **of_routing,
    )


@listed("tsai_em_simple_c10", CIFAR, 10, "tsai2020 Table 6")
@listed("tsai_em_simple_c100", CIFAR, 100, "tsai2020 Table 7")
@listed("tsai_em_resnet_c10", CIFAR, 10, "tsai2020 A.1", backbone="resnet")
@listed("tsai_em_resnet_c100", CIFAR, 100, "tsai2020 A.1", backbone="resnet")
@hands_on("iterations variant compete lambda_", routing="em")
def tsai_em(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    backbone: Literal["simple", "resnet"] = "simple",
    iterations: int = 2,
    compete: Compete = "window",
    lambda_: float = 0.01,
    bias: bool = False,
    weight_std: float = 0.1,
    **of_routing: Any,
) -> CapsuleNetwork:
    check_choice("backbone", backbone, ("simple", "resnet"))
    if backbone == "simple":
        below, width = simple_backbone(image[0], 256, kernel=4, norm=True), 256
    else:
        below, width = resnet_backbone(image[0]), 128
    types = 32
    primary = EMPrimaryCapsules(
        nn.Conv2d(width, types * D_POSE, 1), nn.Conv2d(width, types, 1), d_out=D_POSE
    )
    return _network(
        image,
        n_classes,
        below,
        primary,
        (types, types),
        iterations=iterations,
        compete=compete,
        lambdas=(lambda_, lambda_),
        stds=(weight_std, weight_std),
        vote_bias=bias,
        **of_routing,
    )


def _network(
    image: tuple[int, int, int],
    n_classes: int,
    backbone: nn.Module,
    primary: EMPrimaryCapsules,
    types: tuple[int, int],
    *,
    compete: Compete,
    lambdas: tuple[float, float],
    stds: tuple[float, float],
    vote_bias: bool,
    **em: Any,
) -> CapsuleNetwork:
    """`em` goes to the routing of every layer; the first of two numbers is for all but the last."""
    grid = children_after((backbone, primary), image)["child_grid"]
    layers: dict[str, ConvCapsules | DenseCapsules] = {}
    for depth, (n_types, stride) in enumerate(zip(types, (2, 1), strict=True), start=1):
        layer = ConvCapsules(
            child_grid=grid,
            d_in=D_POSE,
            types=n_types,
            d_out=D_POSE,
            kernel=3,
            stride=stride,
            pose="matrix",
            routing=EMRouting(compete=compete, lambda_=lambdas[0], **em),
            vote_bias=vote_bias,
            weight_std=stds[0],
        )
        layers[f"conv_{depth}"] = layer
        grid = layer.parent_grid
    layers["classes"] = DenseCapsules.after(
        layer,
        n_out=n_classes,
        d_out=D_POSE,
        pose="matrix",
        sharing="type",
        coordinates=True,
        routing=EMRouting(lambda_=lambdas[1], **em),
        vote_bias=vote_bias,
        weight_std=stds[1],
    )
    return assembled(image, backbone, primary, layers)


def _four(sizes: str) -> list[int]:
    numbers = [int(part) for part in sizes.split("-") if part.isdecimal()]
    if len(numbers) != 4 or min(numbers) < 1 or sizes.count("-") != 3:
        raise TorchcapsError(
            f"sizes must be four numbers A-B-C-D, as in '64-8-16-16', but came as {short(sizes)}."
        )
    return numbers
