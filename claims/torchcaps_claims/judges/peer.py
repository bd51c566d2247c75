"""Statements of [peer2022]: signs, and depth with and without a bias."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from torchcaps.study.intervals import mean_interval
from torchcaps_claims.claim import Claim
from torchcaps_claims.judges.evidence import Evidence, Values
from torchcaps_claims.judges.rules import (
    ONE_SIDED,
    Cell,
    confirming,
    each,
    joined,
    left_open,
    minus,
)
from torchcaps_claims.judges.table import judge
from torchcaps_claims.setups import SIGN_LOSS
from torchcaps_claims.verdict import StatementVerdict, StatementWord, word_of

ON_TRAINING = "accuracy@sign/train"
SETS = ("mnist", "fashion-mnist")
DYNAMIC, EM = "peer_deep_dynamic", "peer_deep_em"
# How each says that it has a bias.
BIAS: dict[str, dict[bool, Any]] = {
    DYNAMIC: {False: "none", True: "added"},
    EM: {False: False, True: True},
}
DEPTHS = {DYNAMIC: range(2, 6), EM: range(5, 10)}
# Controls that keep v(-u) = -v(u).
ODD: tuple[dict[str, Any], ...] = (
    {"bias": "odd"},
    {"bias": "none", "squash": "exp"},
    {"bias": "none", "weight_std": 0.3},
)
GAIN, REACHED = 5.0, 1.0
# In percent: a network that is right more often has learned.
LEARNED = 50.0
LATER = "after so short a training a network that has not learned may only learn later"


def _deep(evidence: Evidence, model: str, n: int, data: str, *, bias: bool) -> Values:
    chosen = {"n_layers": n, "bias": BIAS[model][bias], "data": data}
    return evidence.values("accuracy", model, **chosen)


@judge("peer2022-q-sign-not-learnable")
def _sign_not_learnable(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Exactly one half of the symmetric set, in every seed of both networks; what is shown is the
    difference to it, in points."""
    cells = [
        evidence.values(ON_TRAINING, "peer_sign_dynamic", bias="none", loss=SIGN_LOSS["loss"]),
        evidence.values(ON_TRAINING, "peer_sign_em", bias=False, loss=SIGN_LOSS["loss"]),
    ]
    if not all(cells):
        return None
    differences = [value - 50 for cell in cells for value in cell.values()]
    ours, seeds = mean_interval(differences), tuple(map(len, cells))
    if any(differences):
        return StatementVerdict("fails", ours, "within", 0.0, seeds)
    enough = min(seeds) >= claim.conditions["n_seeds_min"]
    return StatementVerdict("holds" if enough else "undecided", ours, "within", 0.0, seeds)


@judge("peer2022-q-sign-learnable-with-bias")
def _sign_learnable_with_bias(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    values = (
        evidence.values(ON_TRAINING, "peer_sign_dynamic", bias="added", loss=SIGN_LOSS["loss"]),
        evidence.values(ON_TRAINING, "peer_sign_em", bias=True, loss=SIGN_LOSS["loss"]),
    )
    cells = [Cell(each, "greater", claim.conditions["threshold"]) for each in values]
    return each(claim, cells, one_sided=False, corrected=True)


@judge("peer2022-q-bias-enables-depth")
def _bias_enables_depth(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    cells = [
        Cell(_deep(evidence, model, n, data, bias=True), "greater", claim.conditions["threshold"])
        for data in SETS
        for model in (DYNAMIC, EM)
        for n in DEPTHS[model]
    ]
    found = each(claim, cells, one_sided=False, corrected=True)
    return _unless_later(evidence, found, "fails")


def _unless_later(
    evidence: Evidence, part: StatementVerdict | None, word: StatementWord
) -> StatementVerdict | None:
    """A part that comes to this word by networks that have not learned, which those of a reduced
    form may do later."""
    if part is None or part.word != word or not evidence.is_reduced:
        return part
    return left_open(part, LATER)


@judge("peer2022-q-depth-rba-nobias")
def _dynamic_without_bias(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return _up_to(claim, evidence, DYNAMIC, trains=(2, 3), stays=(4, 5))


@judge("peer2022-q-depth-em-nobias")
def _em_without_bias(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """The seventh layer costs accuracy, the eighth and the ninth cost everything."""
    falls = each(
        claim,
        [
            Cell(
                _deep(evidence, EM, 6, data, bias=False),
                against=_deep(evidence, EM, 7, data, bias=False),
            )
            for data in SETS
        ],
    )
    # That it costs nothing leaves the statement open.
    shallow_alone = _up_to(claim, evidence, EM, trains=(5, 6), stays=(8, 9))
    return joined(shallow_alone, confirming(falls))


def _up_to(
    claim: Claim,
    evidence: Evidence,
    model: str,
    *,
    trains: tuple[int, ...],
    stays: tuple[int, ...],
) -> StatementVerdict | None:
    """Shallow networks learn, deep ones stay at chance. One that stays is contradicted only where
    it is trained: between chance and trained nothing is decided. A short training can show that a
    network learns, and not that it never does."""
    threshold: Mapping[str, float] = claim.conditions["threshold"]
    learn = each(
        claim,
        [
            Cell(_deep(evidence, model, n, data, bias=False), "greater", threshold["trained"])
            for data in SETS
            for n in trains
        ],
        one_sided=False,
    )
    parts = [_unless_later(evidence, learn, "fails")]
    for values in (_deep(evidence, model, n, data, bias=False) for data in SETS for n in stays):
        at_chance = each(claim, [Cell(values, "less", threshold["chance"])], one_sided=False)
        trained = each(claim, [Cell(values, "greater", threshold["trained"])], one_sided=False)
        is_trained = trained is not None and trained.word == "holds"
        stays_there = at_chance if is_trained else confirming(at_chance)
        parts.append(_unless_later(evidence, stays_there, "holds"))
    return joined(*parts)


@judge("peer2022-q-bias-helps-generally")
def _helps_generally(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    cells = [
        Cell(
            minus(
                _deep(evidence, model, n, data, bias=True),
                _deep(evidence, model, n, data, bias=False),
            )
        )
        for data in SETS
        for model, depths in ((DYNAMIC, (2, 3)), (EM, (5, 6)))
        for n in depths
    ]
    return each(claim, cells, corrected=True)


@judge("peer2022-q-symmetry-causes-depth-failure")
def _symmetry_is_the_cause(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """With a bias more than five points above every odd control, at four and at five layers; not
    so where an odd control comes within one point of a network that learned with a bias."""
    pairs = [
        (
            _deep(evidence, DYNAMIC, n, data, bias=True),
            evidence.values("accuracy", DYNAMIC, n_layers=n, data=data, **control),
        )
        for data in SETS
        for n in (4, 5)
        for control in ODD
    ]
    # The more controls there are, the more often one is as good by chance.
    confidence = 1 - (1 - ONE_SIDED) / len(pairs)
    least: int = claim.conditions["n_seeds_min"]
    for biased, odd in pairs:
        gain = Cell(minus(biased, odd), "less", REACHED)
        # That neither learns says nothing of the cause.
        if not gain.is_there or fmean(biased.values()) <= LEARNED:
            continue
        if word_of(gain.interval(confidence), "less", REACHED, least) == "holds":
            return StatementVerdict("fails", gain.interval(), "greater", GAIN)
    gains = [Cell(minus(*pair), "greater", GAIN) for pair in pairs]
    return confirming(each(claim, gains, one_sided=False))
