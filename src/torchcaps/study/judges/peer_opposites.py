"""Statements of [peer2022] about inputs of layers that are near opposites of each other."""

from collections.abc import Callable, Mapping

from torchcaps.study.claim import Claim
from torchcaps.study.intervals import mean_interval
from torchcaps.study.judges.evidence import Evidence, Values
from torchcaps.study.judges.rules import Cell, confirming, each, joined, minus
from torchcaps.study.verdict import StatementVerdict

__all__ = ["JUDGES"]

# What a bias may change where it is not needed, in points.
NOT_NEEDED = 0.3


def _relu_shields(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Behind a ReLU no component below zero and no near-antipodal pair, with a bias and without,
    and as accurate with it. What a bias gains there contradicts; what it costs does not."""

    def of(statistic: str, *, bias: bool) -> Values:
        shielded = {"primary_relu": True, "bias": bias, "data": "mnist"}
        return evidence.values(statistic, "capsnet", **shielded)

    gain = minus(of("accuracy", bias=True), of("accuracy", bias=False))
    return joined(
        each(claim, [Cell(gain, "less", NOT_NEEDED)]),
        confirming(each(claim, [Cell(gain, "within", NOT_NEEDED)])),
        *(
            _none(claim, of(f"{name}.1", bias=bias))
            for name in ("negative_share", "antipodal_share")
            for bias in (False, True)
        ),
    )


def _none(claim: Claim, shares: Values) -> StatementVerdict | None:
    """Exactly none in every seed; another share leaves the statement open."""
    if not shares:
        return None
    holds = len(shares) >= claim.conditions["n_seeds_min"] and not any(shares.values())
    ours = mean_interval([*shares.values()])
    return StatementVerdict("holds" if holds else "undecided", ours, "within", 0.0)


JUDGES: Mapping[str, Callable[[Claim, Evidence], StatementVerdict | None]] = {
    "peer2022-q-relu-shields-first-layer": _relu_shields,
}
