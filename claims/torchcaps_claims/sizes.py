"""Published sizes beside ours: the parameters that papers print, and those of our networks.

Networks are built on the meta device, which holds shapes and no numbers.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from torchcaps.errors import TorchcapsError
from torchcaps.models import create_model
from torchcaps_claims.claim import Claim, claims
from torchcaps_claims.texts import read_texts

_TEXTS = read_texts("sizes")
# (system, data set, backbone) -> our network.
COUNTED: dict[tuple[str, str, str | None], str] = {
    (system, images, backbone[0] if backbone else None): model
    for model, system, images, *backbone in _TEXTS["counted"]
}
REASONS: dict[str, str] = _TEXTS["reasons"]
PRINTED: dict[str, str] = _TEXTS["printed"]
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
