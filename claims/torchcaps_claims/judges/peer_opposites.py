"""Statements of [peer2022] about inputs of layers that are near opposites of each other."""

from collections.abc import Mapping
from typing import Any

from torchcaps.study.intervals import mean_interval
from torchcaps_claims.claim import Claim
from torchcaps_claims.judges.evidence import Evidence, Values
from torchcaps_claims.judges.rules import Cell, confirming, each, joined, left_open, minus
from torchcaps_claims.judges.table import judge
from torchcaps_claims.ranks import spearman
from torchcaps_claims.setups import SIGN_LOSS
from torchcaps_claims.verdict import StatementVerdict

DYNAMIC, EM, SIGN_DYNAMIC = "peer_deep_dynamic", "peer_deep_em", "peer_sign_dynamic"
COSINE, CHI = "cancellation_cosine", "cancellation_chi"
SETS = ("mnist", "fashion-mnist")
# In percent: 10 points above chance, where learning begins.
BEGUN, BEGUN_ON_SIGNS = 20.0, 60.0
# A cosine above it is far from cancelling.
CONTRADICTED = -0.5
# What a bias may change where it is not needed, in points.
NOT_NEEDED = 0.3


@judge("peer2022-q-relu-shields-first-layer")
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


@judge("peer2022-q-negatives-grow-with-depth")
def _negatives_grow(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """From layer to layer, before training, and after it in the seeds that learned anything; the
    nearest hundredth of the cosines must fall meanwhile."""
    shares, cosines = [], []
    for data in SETS:
        for model, n in ((DYNAMIC, 5), (EM, 9)):
            chosen = {"n_layers": n, "data": data}
            right = evidence.values("accuracy", model, **chosen)
            learned = [seed for seed, accuracy in right.items() if accuracy > BEGUN]
            # Of networks that stay at chance nothing is claimed.
            for when in ("_at_start", "") if learned or not right else ("_at_start",):
                share, cosine = (
                    _rising(evidence, f"{name}{when}", model, chosen)
                    for name in ("antipodal_share", "lowest_cosine")
                )
                seeds = share if when else learned
                shares.append(Cell({seed: share[seed] for seed in seeds if seed in share}))
                cosines.append(sum(cosine[seed] for seed in seeds if seed in cosine))
    found = each(claim, shares)
    falls = all(total < 0 for total in cosines)
    if found is None or found.word != "holds" or falls:
        return found
    return left_open(found, "the nearest pairs do not come nearer from layer to layer")


def _rising(evidence: Evidence, name: str, model: str, chosen: Mapping[str, Any]) -> Values:
    """The correlation of ranks of a statistic with the number of its layer, seed by seed."""
    by_layer = [evidence.values(f"{name}.{k}", model, **chosen) for k in range(1, 10)]
    layers = [layer for layer in by_layer if layer]
    common = set.intersection(*map(set, layers)) if layers else set()
    places = tuple(range(len(layers)))
    return {
        seed: spearman(places, tuple(layer[seed] for layer in layers)) for seed in sorted(common)
    }


@judge("peer2022-q-gradient-cancellation")
def _cancels(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """The cosine before training, and where learning never began the mean of it and of that after
    training, without a bias; and χ before training, without a bias less that with one. A cosine
    above −0.9 leaves it open, and one above −0.5 contradicts."""
    cosines, chis = [], []
    for model, begun, chosen in (
        (SIGN_DYNAMIC, BEGUN_ON_SIGNS, {"loss": SIGN_LOSS["loss"]}),
        (DYNAMIC, BEGUN, {"n_layers": 4, "data": "mnist"}),
    ):
        start, end, right = (
            evidence.values(name, model, bias="none", **chosen)
            for name in (f"{COSINE}_at_start", COSINE, "accuracy")
        )
        waiting = {seed for seed in end if right.get(seed, 100.0) <= begun}
        cosines.append(
            {
                seed: (value + end[seed]) / 2 if seed in waiting else value
                for seed, value in start.items()
            }
        )
        without, with_one = (
            evidence.values(f"{CHI}_at_start", model, bias=bias, **chosen)
            for bias in ("none", "added")
        )
        chis.append(minus(without, with_one))
    threshold: Mapping[str, float] = claim.conditions["threshold"]
    return joined(
        confirming(each(claim, [Cell(x, "less", threshold["cos"]) for x in cosines])),
        each(claim, [Cell(x, "less", CONTRADICTED) for x in cosines]),
        each(claim, [Cell(x, "greater", threshold["chi_difference"]) for x in chis]),
    )
