"""Statements of [gu2021] §3.3 about semantic compactness, factor by factor."""

from torchcaps_claims.claim import Claim
from torchcaps_claims.judges.evidence import Evidence, Values
from torchcaps_claims.judges.rules import Cell, each, minus
from torchcaps_claims.judges.table import judge
from torchcaps_claims.verdict import StatementVerdict

CR, CR_SF, R, CAPSNET = "gu_convnet_cr", "gu_convnet_cr_sf", "gu_convnet_r", "gu_capsnet"
FACTORS = ("rotation", "trans-x", "trans-y", "scale", "shear-x", "shear-y")


def _differences(
    claim: Claim, evidence: Evidence, data: str, pairs: tuple[tuple[str, str], ...]
) -> StatementVerdict | None:
    """The first network of each pair is the more compact, for every factor."""

    def of(model: str, factor: str) -> Values:
        return evidence.values(f"compactness.{factor}", model, data=data)

    cells = [Cell(minus(of(a, factor), of(b, factor))) for a, b in pairs for factor in FACTORS]
    return each(claim, cells, corrected=True)


@judge("gu2021-q-cr-and-squash-semantic")
def _drawing_and_squash(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return _differences(claim, evidence, "mnist", ((CR, R), (CR_SF, CR)))


@judge("gu2021-q-dr-reduces-compactness")
def _routing_reduces(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return _differences(claim, evidence, "mnist", ((CR_SF, CAPSNET),))


@judge("gu2021-q-compactness-fmnist")
def _order_on_fashion(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    pairs = ((CR, R), (CR_SF, CR), (CR_SF, CAPSNET))
    return _differences(claim, evidence, "fashion-mnist", pairs)
