"""Statements of [gu2021] about overlapping digits, and the one about all tasks, of which robustness
and compactness are the others.

A network may be right on more pairs of digits by having learnt sooner, so a reduced form shows
nothing of one that is below the worst network of Table 4.
"""

from collections.abc import Mapping
from dataclasses import replace
from statistics import mean
from typing import Any

from torchcaps_claims.claim import Claim
from torchcaps_claims.judges.evidence import Evidence, Values
from torchcaps_claims.judges.gu_affine import KERNELS, NO_SQUASH, robuster
from torchcaps_claims.judges.rules import Cell, confirming, each, joined, minus, times
from torchcaps_claims.judges.table import judge
from torchcaps_claims.verdict import StatementVerdict, StatementWord

AFF_DR, CAPSNET, NOR = "gu_aff_capsnet_dr", "gu_capsnet", "gu_capsnet_nor"
AVG, FC, LK = "convnet_avg", "convnet_fc", "gu_convnet_fc_lk"
CR, R, CR_SF = "gu_convnet_cr", "gu_convnet_r", "gu_convnet_cr_sf"
# Types of primary capsules with which shared matrices make a network of as many parameters as
# CapsNet's, on images of 36 × 36.
AS_LARGE = 57
# The least that Table 4 prints, of matrices that are shared.
LEARNT = 86.44
# What a row trains on, and what its reduced form does.
SEVERAL, SMALLER = "multi-mnist-100", "multi-mnist"
ALL_SIZES = ("multi-mnist", "multi-mnist-10", "multi-mnist-100", "multi-mnist-1000")


def _overlaid(evidence: Evidence, model: str, *, data: str = SEVERAL, **chosen: Any) -> Values:
    data = SMALLER if evidence.is_reduced else data
    return evidence.values("accuracy", model, data=data, **_loss(model, chosen))


def _fitted(evidence: Evidence, model: str, **chosen: Any) -> Values:
    """Accuracy on the overlaid images that were trained on."""
    data = SMALLER if evidence.is_reduced else SEVERAL
    return evidence.values(f"accuracy@{data}/train", model, data=data, **_loss(model, chosen))


def _more_right(first: Values, second: Values, evidence: Evidence) -> Cell:
    """By how much the first of two is right on more pairs of digits."""
    return Cell(minus(first, second), open_because=_half_trained(evidence, first, second))


def _half_trained(evidence: Evidence, *networks: Values) -> str | None:
    least = min((mean(values.values()) for values in networks if values), default=LEARNT)
    if not evidence.is_reduced or least >= LEARNT:
        return None
    return (
        f"after so short a training {least:.1f} % of the pairs are right, and of no network of "
        f"Table 4 fewer than {LEARNT} %: it may only learn later"
    )


def _loss(model: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Networks with a softmax are trained by binary cross-entropy where images show several."""
    is_softmax = model in (AVG, FC, LK, R) and not chosen.get("margin")
    return {**({"loss": "binary"} if is_softmax else {}), **chosen}


@judge("gu2021-q-all-components-help-multimnist")
def _all_components_help(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Each change costs accuracy, and shared matrices cost the most of it."""
    whole = _overlaid(evidence, CAPSNET)
    shared, *others = (
        _more_right(whole, changed, evidence)
        for changed in (
            _overlaid(evidence, AFF_DR),
            _overlaid(evidence, NOR),
            _overlaid(evidence, CAPSNET, **NO_SQUASH),
            _overlaid(evidence, CAPSNET, decoder=False),
            _overlaid(evidence, CAPSNET, loss="binary"),
        )
    )
    drops = each(claim, [shared, *others], corrected=True)
    largest = each(claim, [Cell(minus(shared.values, drop.values)) for drop in others])
    return joined(drops, confirming(largest))


@judge("gu2021-q-recon-need-not-be-conditional")
def _drawing_need_not_know(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    unmasked = _overlaid(evidence, CAPSNET, mask="none")
    gain = _more_right(unmasked, _overlaid(evidence, CAPSNET, decoder=False), evidence)
    same = _more_right(_overlaid(evidence, CAPSNET), unmasked, evidence)
    within = claim.conditions["threshold"]["equivalence"]
    return each(claim, [gain, replace(same, side="within", threshold=within)])


@judge("gu2021-q-margin-beats-bce")
def _margin_beats_binary(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    binary = _overlaid(evidence, CAPSNET, loss="binary")
    return each(claim, [_more_right(_overlaid(evidence, CAPSNET), binary, evidence)])


@judge("gu2021-q-avg-bad-for-overlap")
def _avg_bad_for_overlap(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    gain = _more_right(_overlaid(evidence, CAPSNET), _overlaid(evidence, AVG), evidence)
    return each(claim, [gain])


@judge("gu2021-q-fc-lk-beats-capsnet")
def _large_kernels_beat(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Four sizes of the training set and five kernels; a reduced protocol has one size."""
    sizes = (SMALLER,) if evidence.is_reduced else ALL_SIZES
    chosen: list[dict[str, Any]] = [
        *({"data": x} for x in sizes),
        *({"kernel": k} for k in KERNELS),
    ]
    cells = [
        _more_right(_overlaid(evidence, LK, **x), _overlaid(evidence, CAPSNET, **x), evidence)
        for x in chosen
    ]
    return each(claim, cells, corrected=True)


@judge("gu2021-q-recon-enhances-convnet")
def _drawing_enhances(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return _enhances(claim, evidence, {"reconstruction": True})


@judge("gu2021-q-margin-enhances-convnet")
def _margin_enhances(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return _enhances(claim, evidence, {"margin": True})


def _enhances(
    claim: Claim, evidence: Evidence, chosen: Mapping[str, Any]
) -> StatementVerdict | None:
    cells = [
        _more_right(_overlaid(evidence, model, **chosen), _overlaid(evidence, model), evidence)
        for model in (FC, LK)
    ]
    return each(claim, cells, corrected=True)


@judge("gu2021-q-capacity-explains-multimnist")
def _capacity_explains(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Routing and matrices of one's own fit the training images better, and a wide network that
    shares them is behind by less than half of what sharing costs."""
    whole = _fitted(evidence, CAPSNET)
    fits = [_more_right(whole, _fitted(evidence, model), evidence) for model in (NOR, AFF_DR)]
    right, shared = _overlaid(evidence, CAPSNET), _overlaid(evidence, AFF_DR)
    half = times(0.5, minus(right, shared))
    wider = _overlaid(evidence, AFF_DR, types=AS_LARGE)
    because = _half_trained(evidence, right, shared, wider)
    behind = Cell(minus(minus(right, wider), half), "less", open_because=because)
    return joined(each(claim, fits), each(claim, [behind], one_sided=False))


@judge("gu2021-q-no-single-convnet", within_a_set=True)
def _no_single_convnet(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """In each of three tasks some ConvNet is better than CapsNet, and none is in all three.
    Contradicted by one that is, or by a task in which every one is worse. Three of them have no
    class vectors, and so no compactness: there they are neither better nor worse, and not every one
    is worse."""

    def compact(model: str) -> Values:
        return evidence.values("compactness", model, data="mnist")

    every = (FC, LK, AVG, CR, R, CR_SF)
    capsnet = _overlaid(evidence, CAPSNET)
    tasks = (
        {m: robuster(evidence, (m, {}), (CAPSNET, {}), stops=True) for m in every},
        {m: _more_right(_overlaid(evidence, m), capsnet, evidence) for m in every},
        {m: Cell(minus(compact(m), compact(CAPSNET))) for m in (CR, R, CR_SF)},
    )
    if not all(cell.is_there for task in tasks for cell in task.values()):
        return None
    least: int = claim.conditions["n_seeds_min"]
    words = [
        {model: cell.word(least, one_sided=True, cells=1) for model, cell in task.items()}
        for task in tasks
    ]
    # The best of a task, in the task where CapsNet is hardest to beat.
    shown = min((max(task.values(), key=Cell.slack) for task in tasks), key=Cell.slack)
    wins_all = any(all(task.get(model) == "holds" for task in words) for model in every)
    loses = any([*task.values()] == ["fails"] * len(every) for task in words)
    word: StatementWord = "undecided"
    if wins_all or loses:
        word = "fails"
    elif all("holds" in task.values() for task in words):
        word = "holds"
    because = shown.open_because if word == "undecided" else None
    return StatementVerdict(
        word, shown.interval(), shown.side, shown.threshold, open_because=because
    )
