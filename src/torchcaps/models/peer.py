"""Networks of [peer2022] §5: can a capsule network tell x from −x, and how deep does it learn?

peer_deep_dynamic  the trunk of CapsNet (32 types × 8), hidden layers of 16 × 12, 10 × 16 classes
peer_deep_em       the same with EM routing
peer_sign_dynamic  Fig. 1: an input scalar is one capsule of one component, as are all others
peer_sign_em       the same with EM routing

Their question is `bias`: of dynamic routing in the squashed sum, §4.1; of EM routing in the votes,
§4.2. bias="odd" is a control of ours for dynamic routing: a bias that keeps the symmetry.

The first of each pair takes other routings, but not "em": by EM routing it is the second, whose
λ, first weights and iterations differ.

`width` is that of the first convolution; less than 256 is ours, for a quick trunk.

Departures:
1. EM routing is that of Alg. 2. The adapted version of Gritzman that §5 mentions is not described;
   public code has the variance in place of the deviation in its costs.
2. Of EM routing λ is 0.1, of the sign net 1, where others take 0.01: of layers so narrow, costs are
   too small for that to reach an activation; at 1 those of the deep net are all 1 from the start.
   Weights of the deep net start at N(0, 0.3²), those of its public code smaller: at 0.1 activations
   hardly depend on the image (benchmarks/records/learning.json has both). With another variant λ is
   that of its code, 0.0025 for official and 0.01 for gritzman.
Ambiguities:
1. What n layers are: n_layers counts the primary and the class layer, as public code does.
2. There is no ReLU before the primary squash, as in that code, although §1 argues with one:
   `primary_relu=True` has it.
3. Sign nets: one hidden layer of 20, two output capsules, W ~ N(0, 0.5²), from the first version of
   the code that the paper names, whose samples, batches and epochs are the paper's. Activations of
   the input capsule are |x|. With `as_code=True` biases start at 0.5 as there, costs of EM from
   N(0, 0.5²), λ is 0.01, and parents get unit poses times activations. Two things differ. Costs of
   that code have ln σ²; halves of them are those of Alg. 2 at twice the λ, and Adam moves them
   twice as far. Its unit poses of one component have next to no gradient, as with
   `unit_poses="code"`; ours are smooth within 1e-4, and through them the first layer learns.
4. Poses of the deep EM net are a_j μ_j / ‖μ_j‖ as in public code: means alone are 1e-5 long after
   five layers.
5. The decoder, off or on in the experiments, is on. It sees the class that is drawn, and starts as
   convolutions do, by PyTorch; in that code it sees all classes, and they start by Keras, Glorot
   uniform with biases of zero: `as_code=True`. Still, its decoder draws standardised images, ours
   pixels; and its squash adds 1e-8 to each component, which breaks the symmetry a little.
6. EM routes twice, as in public code: with three, nine layers stay at chance (docs/routing/em.md).
"""

from typing import Any, Literal, get_args

from torch import nn

from torchcaps._checks import check_choice
from torchcaps.errors import TorchcapsError
from torchcaps.layers import PrimaryCapsules, sabour_backbone
from torchcaps.layers.backbone import rectified
from torchcaps.layers.convolution import LargeConv2d
from torchcaps.models.initialise import Init
from torchcaps.models.limits import check_layers
from torchcaps.models.network import CapsuleNetwork
from torchcaps.models.preset import SMALL, hands_on, listed
from torchcaps.models.stack import stacked

# Words, since there are three.
Bias = Literal["none", "added", "odd"]
N_HIDDEN, D_HIDDEN = 16, 12
D_PRIMARY, D_CLASS = 8, 16


@listed("peer_deep_dynamic", SMALL, 10, "peer2022 §5.3", by_em="peer_deep_em")
@hands_on("iterations bias squash agreement")
def peer_deep_dynamic(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    n_layers: int = 3,
    routing: str = "dynamic",
    bias: Bias = "none",
    weight_std: float = 0.1,
    init: Init = "paper",
    decoder: bool = True,
    width: int = 256,
    primary_relu: bool = False,
    as_code: bool = False,
    **of_routing: Any,
) -> CapsuleNetwork:
    if as_code and init != "paper":
        raise TorchcapsError(
            f"as_code=True and init={init!r} both say how convolutions start; give one of them."
        )
    options = {"routing": routing, "bias": _bias(bias), "weight_std": weight_std, "init": init}
    mask = "none" if as_code else "class"
    network = _deep(
        image, n_classes, n_layers, decoder, width, primary_relu, mask=mask, **options, **of_routing
    )
    return _begin_as_keras(network) if as_code else network


@listed("peer_deep_em", SMALL, 10, "peer2022 §5.3")
@hands_on("iterations bias unit_poses lambda_ variant", routing="em")
def peer_deep_em(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    n_layers: int = 5,
    iterations: int = 2,
    bias: bool = False,
    unit_poses: bool = True,
    lambda_: float = 0.0,
    variant: str = "paper",
    weight_std: float = 0.3,
    decoder: bool = True,
    width: int = 256,
    primary_relu: bool = False,
    **of_routing: Any,
) -> CapsuleNetwork:
    return _deep(
        image,
        n_classes,
        n_layers,
        decoder,
        width,
        primary_relu,
        routing="em",
        iterations=iterations,
        bias=bias,
        unit_poses=unit_poses,
        lambda_=_lambda(lambda_, variant, 0.1),
        variant=variant,
        weight_std=weight_std,
        **of_routing,
    )


@listed("peer_sign_dynamic", (1, 1, 1), 2, "peer2022 §5.2", by_em="peer_sign_em")
@hands_on("iterations bias squash agreement")
def peer_sign_dynamic(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    n_hidden: int = 20,
    routing: str = "dynamic",
    bias: Bias = "none",
    weight_std: float = 0.5,
    as_code: bool = False,
    **of_routing: Any,
) -> CapsuleNetwork:
    network = _sign(
        image,
        n_classes,
        n_hidden,
        routing=routing,
        bias=_bias(bias),
        weight_std=weight_std,
        **of_routing,
    )
    return _begin_as_code(network, weight_std) if as_code else network


@listed("peer_sign_em", (1, 1, 1), 2, "peer2022 §5.2")
@hands_on("iterations bias lambda_ variant", routing="em")
def peer_sign_em(
    *,
    image: tuple[int, int, int],
    n_classes: int,
    n_hidden: int = 20,
    bias: bool = False,
    lambda_: float = 0.0,
    variant: str = "paper",
    weight_std: float = 0.5,
    as_code: bool = False,
    **of_routing: Any,
) -> CapsuleNetwork:
    network = _sign(
        image,
        n_classes,
        n_hidden,
        routing="em",
        bias=bias,
        lambda_=_lambda(lambda_, variant, 0.02 if as_code else 1.0),
        variant=variant,
        weight_std=weight_std,
        **{"unit_poses": True, **of_routing} if as_code else of_routing,
    )
    return _begin_as_code(network, weight_std) if as_code else network


def _lambda(given: float, variant: str, paper: float) -> float:
    """Choose λ; 0 stands for that of the variant. Of the other variants it is their code's, for its
    layer of classes: their β_a begins so large that with a larger λ all activations and gradients
    would be zero."""
    own = {"paper": paper, "official": 0.0025, "gritzman": 0.01}
    check_choice("variant", variant, list(own))
    return given or own[variant]


def _deep(
    image: tuple[int, int, int],
    n_classes: int,
    n_layers: int,
    decoder: bool,
    width: int,
    primary_relu: bool,
    **options: Any,
) -> CapsuleNetwork:
    check_layers(n_layers)
    backbone = sabour_backbone(image[0], width=width)
    projection = rectified(LargeConv2d(width, 256, 9, stride=2), primary_relu)
    primary = PrimaryCapsules(projection, d_out=D_PRIMARY)
    sizes = {f"hidden_{depth}": (N_HIDDEN, D_HIDDEN) for depth in range(2, n_layers)}
    sizes["classes"] = (n_classes, D_CLASS)
    return stacked(image, backbone, primary, sizes, decoder=decoder, **options)


def _sign(
    image: tuple[int, int, int], n_classes: int, n_hidden: int, **options: Any
) -> CapsuleNetwork:
    primary = PrimaryCapsules(nn.Identity(), d_out=1, squash="none")
    sizes = {"hidden_2": (n_hidden, 1), "classes": (n_classes, 1)}
    return stacked(image, nn.Identity(), primary, sizes, **options)


def _begin_as_keras(network: CapsuleNetwork) -> CapsuleNetwork:
    """Start all but the routed layers as Keras does: Glorot uniform, biases zero."""
    for name, each in network.named_parameters():
        if not name.startswith("layers."):
            nn.init.xavier_uniform_(each) if each.ndim > 1 else nn.init.zeros_(each)
    return network


def _begin_as_code(network: CapsuleNetwork, std: float) -> CapsuleNetwork:
    for name, each in network.named_parameters():
        if name.endswith("bias"):
            nn.init.constant_(each, std)
        elif "beta_" in name:
            nn.init.normal_(each, std=std / 2)
    return network


def _bias(word: str) -> bool | str:
    check_choice("bias", word, get_args(Bias))
    return {"none": False, "added": True}.get(word, word)
