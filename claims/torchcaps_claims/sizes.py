"""Published sizes beside ours: the parameters that papers print, and those of our networks.

Networks are built on the meta device, which holds shapes and no numbers.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from torchcaps.errors import TorchcapsError
from torchcaps.models import create_model
from torchcaps_claims.claim import Claim, claims

# (system, data set, backbone) -> our network. [tsai2020] Tables 10 to 12 print three input channels
# for DiverseMultiMNIST, but its 42.49M parameters need one.
COUNTED: dict[tuple[str, str, str | None], str] = {
    **{
        (system, "MNIST 40x40", None): name
        for system, name in (
            ("ConvNet-FC", "convnet_fc"),
            ("ConvNet-Avg", "convnet_avg"),
            ("CapsNet", "gu_capsnet"),
            ("CapsNet-NoR", "gu_capsnet_nor"),
            ("Aff-CapsNet", "gu_aff_capsnet"),
            ("Aff-CapsNet-DR", "gu_aff_capsnet_dr"),
        )
    },
    **{
        (system, f"CIFAR-{n}", backbone): f"tsai_{routing}_{backbone.lower()}_c{n}"
        for system, routing in (
            ("Dynamic Routing", "dynamic"),
            ("EM Routing", "em"),
            ("Inverted Dot-Product Attention Routing", "inverted"),
        )
        for backbone in ("simple", "ResNet")
        for n in (10, 100)
    },
    ("Baseline CNN", "CIFAR-10", "simple"): "tsai_cnn_c10",
    ("Baseline CNN", "CIFAR-100", "simple"): "tsai_cnn_c100",
    ("ResNet-18", "CIFAR-10", None): "resnet18",
    ("ResNet-18", "CIFAR-100", None): "tsai_resnet18_c100",
    ("baseline CNN, pooling replaced by a full matrix", "DiverseMultiMNIST", None): (
        "tsai_dmm_cnn_fcpool"
    ),
    **{
        (system, "MNIST", None): name
        for system, name in (
            ("DR-CapsNet", "rem_dr"),
            ("γ-CapsNet", "rem_gamma"),
            ("DeepCaps", "rem_deepcaps"),
            ("Eff-CapsNet", "rem_eff_mnist"),
        )
    },
}
CUT_OFF = "is cut off and not rounded"
# Why a printed number is not ours.
REASONS = {
    "gu2021-t1-aff-capsnet-params": f"7.5M {CUT_OFF}; a matrix a type would make 7,618,368",
    "gu2021-t1-aff-capsnet-dr-params": f"7.5M {CUT_OFF}, as for Aff-CapsNet",
    "gu2021-t3-convnet-avg-k3-params": f"0.59M {CUT_OFF}",
    "gu2021-t3-convnet-avg-k5-params": "the same layers fit what is printed for kernels 7 and 11",
    "gu2021-t3-convnet-avg-k9-params": "Table 1 of the same paper prints 5.3M, which is met",
    "rem-t9-eff-capsnet-params": f"161k {CUT_OFF}",
    "rem-t9-eff-capsnet-q-params": f"161k {CUT_OFF}",
}
# JSON drops the last zero of what is printed with two digits.
PRINTED = {
    "gu2021-t3-convnet-avg-k5-params": "1.70",
    "gu2021-t3-convnet-avg-k9-params": "5.30",
    "tsai2020-t1-em-routing-simple-cifar-100-params": "0.50",
    "tsai2020-t1-inverted-dot-product-attention-routing-resnet-cifar-100-params": "2.80",
}
UNITS = {"M": 10**6}


@dataclass(frozen=True)
class PublishedSize:
    """One printed number of parameters. `ours` is None where there is nothing to count, and `why`
    is empty where both are equal in the digits that are printed."""

    claim: str
    where: str
    system: str
    printed: str
    model: str | None
    ours: int | None
    why: str

    @property
    def is_equal(self) -> bool:
        return self.ours is not None and not self.why


def published_sizes() -> tuple[PublishedSize, ...]:
    """Every size that the papers print, in their order.

    >>> len(published_sizes()) > 0
    True
    """
    return tuple(_beside(claim) for claim in claims() if claim.kind == "params")


def digits_of(claim: Claim) -> str:
    """What the paper prints, without its unit."""
    return PRINTED.get(claim.id, str(claim.value))


def _beside(claim: Claim) -> PublishedSize:
    kernel: int | None = claim.conditions.get("kernel")
    kernel_is = f", kernel {kernel}" if kernel else ""
    backbone = claim.conditions.get("backbone")
    built_on = f", {backbone} backbone" if backbone else ""
    system = f"{claim.system}{built_on}{kernel_is}, {claim.dataset}"
    place = f"{claim.paper} {claim.where}"
    printed = f"{digits_of(claim)}{claim.unit or ''}"

    def row(model: str | None, ours: int | None, why: str) -> PublishedSize:
        return PublishedSize(claim.id, place, system, printed, model, ours, why)

    if claim.needs_trained:
        return row(None, None, "counts what pruning leaves, which only training can tell")
    if claim.configuration is not None:
        return row(None, None, "the paper gives no layers for it")
    # Couplings are quantised when a network is evaluated; it is the same network.
    known = (claim.system or "").removesuffix("+Q"), claim.dataset or "", backbone
    if known not in COUNTED:
        raise TorchcapsError(f"{claim.id} prints a size, but no network of ours stands for it.")
    model = COUNTED[known]
    ours = parameters_of(model, kernel)
    digits = len(digits_of(claim).partition(".")[2])
    assert isinstance(claim.value, int | float)
    equal = round(ours / UNITS[claim.unit or "M"], digits) == claim.value
    return row(model, ours, "" if equal else REASONS.get(claim.id, "unexplained"))


@cache
def parameters_of(model: str, kernel: int | None = None) -> int:
    """The parameters of a network of ours, for the images of its paper."""
    import torch

    options: dict[str, Any] = {} if kernel is None else {"kernel": kernel}
    with torch.device("meta"):
        network = create_model(model, **options)
    return sum(parameter.numel() for parameter in network.parameters())
