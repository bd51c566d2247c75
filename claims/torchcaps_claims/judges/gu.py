"""Statements of [gu2021]."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torchcaps_claims.judges.case import (
    Case,
    Verdict,
    confirming,
    holds,
    joined,
    judge,
    open_if,
    shown,
    without_lean,
)
from torchcaps_claims.judges.values import Cell, Values, most, slopes
from torchcaps_claims.sizes import parameters_of
from torchcaps_claims.verdict import StatementWord, is_as_right

AFF, AFF_DR, CAPSNET, NOR = "gu_aff_capsnet", "gu_aff_capsnet_dr", "gu_capsnet", "gu_capsnet_nor"
AVG, FC, LK = "convnet_avg", "convnet_fc", "gu_convnet_fc_lk"
CR, R, CR_SF = "gu_convnet_cr", "gu_convnet_r", "gu_convnet_cr_sf"
KERNELS = (3, 5, 7, 9, 11)
ORIGINAL = {CAPSNET: 9, FC: 5}
STOP = 0.9922
NO_SQUASH: dict[str, Any] = {"primary_squash": "none", "class_squash": "none"}
# Types of primary capsules with which shared matrices make a network of as many parameters as
# CapsNet's, on images of 36 × 36.
AS_LARGE = 57
# What a row trains on, and what its reduced form does.
SEVERAL, SMALLER = "multi-mnist-100", "multi-mnist"
ALL_SIZES = ("multi-mnist", "multi-mnist-10", "multi-mnist-100", "multi-mnist-1000")
FACTORS = ("rotation", "trans-x", "trans-y", "scale", "shear-x", "shear-y")
# A network, and what is chosen of it.
System = str | tuple[str, Mapping[str, Any]]


# Robustness to affine changes.


def _affine(case: Case, model: str, *, stops: bool = False, **chosen: Any) -> Values:
    """Accuracy on affNIST: of networks that stop early, or of those that train to the end, which
    are the same ones in the reduced form."""
    name = "accuracy@affnist/test|accuracy@affnist-style/test"
    return case.values(name, model, **_transfer(case, stops, chosen))


def _transfer(case: Case, stops: bool, chosen: Mapping[str, Any]) -> dict[str, Any]:
    stop_at = STOP if stops and not case.is_reduced else None
    return {"data": "expanded-mnist", "stop_at": stop_at, **chosen}


def _robuster(case: Case, *systems: System, stops: bool = False) -> Values:
    """By how much the first is ahead on moved digits of the best of the others."""
    chosen = [(each, {}) if isinstance(each, str) else each for each in systems]
    ours, *theirs = (_affine(case, m, stops=stops, **c) for m, c in chosen)
    return ours - most(theirs)


def _gain(case: Case, *systems: System, stops: bool = False) -> Cell:
    """The same, which leans nowhere where the one that is ahead has learned more: where the other
    makes over 1.25 times its errors on digits that were not moved."""
    found = _robuster(case, *systems, stops=stops)
    chosen = [(each, {}) if isinstance(each, str) else each for each in systems]
    right = [case.values("accuracy", m, **_transfer(case, stops, c)) for m, c in chosen]
    if not found or not all(right):
        return Cell(found)
    moved = [_affine(case, m, stops=stops, **c).mean for m, c in chosen]
    # The best of the others is the one that is compared.
    best = max(range(1, len(chosen)), key=moved.__getitem__)
    ahead, behind = (right[0], right[best]) if found.mean > 0 else (right[best], right[0])
    if is_as_right([*behind.values()], ahead.mean):
        return Cell(found)
    because = (
        f"the network that is ahead has learned more: {ahead.mean:.1f} and {behind.mean:.1f} % of "
        f"digits that were not moved are right"
    )
    return Cell(found, open_because=because, leans=False)


@judge("gu2021-q-convnet-avg-beats-capsnet")
def _avg_beats_capsnet(case: Case) -> Verdict:
    assert parameters_of(AVG) < parameters_of(CAPSNET)
    return case.bound(replace(_gain(case, AVG, CAPSNET, stops=True), threshold=case.threshold))


@judge("gu2021-q-capsnet-beats-convnet-fc")
def _capsnet_beats_fc(case: Case) -> Verdict:
    assert parameters_of(CAPSNET) < parameters_of(FC)
    return case.each(_gain(case, CAPSNET, FC, stops=True))


@judge("gu2021-q-convnet-avg-beats-aff-capsnet")
def _avg_beats_aff_capsnet(case: Case) -> Verdict:
    changes: tuple[dict[str, Any], ...] = (
        {"mask": "none"},
        {"decoder": False},
        {"loss": "cross_entropy"},
    )
    others = [(AFF, change) for change in changes]
    gains = [_gain(case, AVG, AFF, *others, stops=stops) for stops in (True, False)]
    return case.each(*gains, corrected=True)


@judge("gu2021-q-dr-harms-affine")
def _routing_harms(case: Case) -> Verdict:
    own = _gain(case, NOR, CAPSNET, stops=True)
    return case.each(_gain(case, AFF, AFF_DR), own, corrected=True)


@judge("gu2021-q-shared-helps-affine")
def _sharing_helps(case: Case) -> Verdict:
    cells = (_gain(case, AFF, NOR, stops=stops) for stops in (False, True))
    return case.each(*cells, corrected=True)


@judge("gu2021-q-squash-helps-affine")
def _squash_helps(case: Case) -> Verdict:
    """Training accuracy is that of all images trained on or, where one network lacks it, of the
    thousand of them that the last epoch measured."""

    def fitted(**chosen: Any) -> Values:
        return case.values("accuracy@expanded-mnist/train", AFF, **_transfer(case, False, chosen))

    def sampled(**chosen: Any) -> Values:
        curves = case.curves("training_sample_accuracy", AFF, **_transfer(case, False, chosen))
        return Values({seed: 100 * curve[-1] for seed, curve in curves.items()})

    fits = fitted() - fitted(**NO_SQUASH) or sampled() - sampled(**NO_SQUASH)
    return case.each(_robuster(case, AFF, (AFF, NO_SQUASH)), fits)


@judge("gu2021-q-recon-neutral-affine")
def _drawing_is_neutral(case: Case) -> Verdict:
    neutral = _robuster(case, AFF, (AFF, {"decoder": False})).within(case.threshold)
    return case.each(neutral, _robuster(case, (AFF, {"mask": "none"}), AFF))


@judge("gu2021-q-margin-slightly-harms")
def _margin_harms(case: Case) -> Verdict:
    return case.each(_gain(case, (AFF, {"loss": "cross_entropy"}), AFF))


@judge("gu2021-q-large-kernels-help")
def _large_kernels_help(case: Case) -> Verdict:
    """How many points of moved digits a pixel of kernel gives."""
    every = (CAPSNET, FC, AVG)
    return case.each(*(slopes({k: _affine(case, m, kernel=k) for k in KERNELS}) for m in every))


@judge("gu2021-q-convnet-avg-every-kernel")
def _avg_every_kernel(case: Case) -> Verdict:
    every = (AVG, CAPSNET, FC)
    cells = [_gain(case, *((model, {"kernel": k}) for model in every)) for k in KERNELS]
    return case.each(*cells, corrected=True)


@judge("gu2021-q-fc-gap-is-kernel")
def _gap_is_kernel(case: Case) -> Verdict:
    """At equal kernels less than half of the gap is left; contradicted at the larger alone. Where
    there is no gap to explain it is open."""
    gap = {k: _robuster(case, *((m, {"kernel": k}) for m in ORIGINAL)) for k in (5, 9)}
    whole = _robuster(case, *((model, {"kernel": k}) for model, k in ORIGINAL.items()))
    small, large = (case.bound((gap[k] - case.threshold * whole).less()) for k in (5, 9))
    is_gap = holds(case.each(whole))
    return open_if(not is_gap, joined(large, confirming(small)), "there is no gap to explain")


@judge("gu2021-q-groups-no-effect")
def _groups_do_nothing(case: Case) -> Verdict:
    others = [(AFF, {"types": types, "d_primary": 256 // types}) for types in (8, 16, 64)]
    gains = [_gain(case, other, AFF) for other in others]
    cells = [replace(gain, side="within", threshold=case.threshold) for gain in gains]
    return case.each(*cells, corrected=True)


# Overlapping digits.


def _overlaid(case: Case, model: str, *, data: str = SEVERAL, **chosen: Any) -> Values:
    data = SMALLER if case.is_reduced else data
    return case.values("accuracy", model, data=data, **_loss(model, chosen))


def _fitted(case: Case, model: str) -> Values:
    """Accuracy on the overlaid images that were trained on."""
    data = SMALLER if case.is_reduced else SEVERAL
    return case.values(f"accuracy@{data}/train", model, data=data, **_loss(model, {}))


def _loss(model: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Networks with a softmax are trained by binary cross-entropy where images show several."""
    is_softmax = model in (AVG, FC, LK, R) and not chosen.get("margin")
    return {**({"loss": "binary"} if is_softmax else {}), **chosen}


@judge("gu2021-q-all-components-help-multimnist")
def _all_components_help(case: Case) -> Verdict:
    """Each change costs accuracy, and shared matrices cost the most of it."""
    whole = _overlaid(case, CAPSNET)
    changed = (
        _overlaid(case, AFF_DR),
        _overlaid(case, NOR),
        _overlaid(case, CAPSNET, **NO_SQUASH),
        _overlaid(case, CAPSNET, decoder=False),
        _overlaid(case, CAPSNET, loss="binary"),
    )
    shared, *others = (whole - each for each in changed)
    drops = case.each(shared, *others, corrected=True)
    return joined(drops, confirming(case.each(*(shared - x for x in others))))


@judge("gu2021-q-recon-need-not-be-conditional")
def _drawing_need_not_know(case: Case) -> Verdict:
    unmasked = _overlaid(case, CAPSNET, mask="none")
    gain = unmasked - _overlaid(case, CAPSNET, decoder=False)
    same = _overlaid(case, CAPSNET) - unmasked
    return case.each(gain, same.within(case.threshold["equivalence"]))


@judge("gu2021-q-margin-beats-bce")
def _margin_beats_binary(case: Case) -> Verdict:
    return case.each(_overlaid(case, CAPSNET) - _overlaid(case, CAPSNET, loss="binary"))


@judge("gu2021-q-avg-bad-for-overlap")
def _avg_bad_for_overlap(case: Case) -> Verdict:
    return case.each(_overlaid(case, CAPSNET) - _overlaid(case, AVG))


@judge("gu2021-q-fc-lk-beats-capsnet")
def _large_kernels_beat(case: Case) -> Verdict:
    """Four sizes of the training set and five kernels; a reduced protocol has one size."""
    sizes = (SMALLER,) if case.is_reduced else ALL_SIZES
    choices: list[dict[str, Any]] = [{"data": data} for data in sizes]
    choices += [{"kernel": k} for k in KERNELS]
    cells = [_overlaid(case, LK, **x) - _overlaid(case, CAPSNET, **x) for x in choices]
    return case.each(*cells, corrected=True)


@judge("gu2021-q-recon-enhances-convnet")
def _drawing_enhances(case: Case) -> Verdict:
    return _enhances(case, reconstruction=True)


@judge("gu2021-q-margin-enhances-convnet")
def _margin_enhances(case: Case) -> Verdict:
    return _enhances(case, margin=True)


def _enhances(case: Case, **chosen: Any) -> Verdict:
    cells = [_overlaid(case, model, **chosen) - _overlaid(case, model) for model in (FC, LK)]
    return case.each(*cells, corrected=True)


@judge("gu2021-q-capacity-explains-multimnist")
def _capacity_explains(case: Case) -> Verdict:
    """Routing and matrices of one's own fit the training images better, and a wide network that
    shares them is behind by less than half of what sharing costs."""
    whole = _fitted(case, CAPSNET)
    fits = [whole - _fitted(case, model) for model in (NOR, AFF_DR)]
    right, shared = _overlaid(case, CAPSNET), _overlaid(case, AFF_DR)
    wider = _overlaid(case, AFF_DR, types=AS_LARGE)
    behind = (right - wider) - 0.5 * (right - shared)
    return joined(case.each(*fits), case.bound(behind.less()))


# All tasks, and the compactness of what decoders see and draw.


@judge("gu2021-q-no-single-convnet", within_a_set=True)
def _no_single_convnet(case: Case) -> Verdict:
    """In each of three tasks some ConvNet is better than CapsNet, and none is in all three.
    Contradicted by one that is, or by a task in which every one is worse. Three of them have no
    class vectors, and so no compactness: there they are neither better nor worse, and not every one
    is worse."""

    def compact(model: str) -> Values:
        return case.values("compactness", model, data="mnist")

    every = (FC, LK, AVG, CR, R, CR_SF)
    capsnet = _overlaid(case, CAPSNET)
    tasks = (
        {m: Cell(_robuster(case, m, CAPSNET, stops=True)) for m in every},
        {m: Cell(_overlaid(case, m) - capsnet) for m in every},
        {m: Cell(compact(m) - compact(CAPSNET)) for m in (CR, R, CR_SF)},
    )
    if not all(cell.is_there for task in tasks for cell in task.values()):
        return None
    words = [
        {model: cell.word(case.least, one_sided=True, cells=1) for model, cell in task.items()}
        for task in tasks
    ]
    wins_all = any(all(task.get(model) == "holds" for task in words) for model in every)
    loses = any([*task.values()] == ["fails"] * len(every) for task in words)
    word: StatementWord = "undecided"
    if wins_all or loses:
        word = "fails"
    elif all("holds" in task.values() for task in words):
        word = "holds"
    # The best of a task, in the task where CapsNet is hardest to beat.
    return shown(word, min((max(t.values(), key=Cell.slack) for t in tasks), key=Cell.slack))


def _more_compact(case: Case, data: str, *pairs: tuple[str, str]) -> Verdict:
    """The first network of each pair is the more compact, for every factor."""

    def of(model: str, factor: str) -> Values:
        return case.values(f"compactness.{factor}", model, data=data)

    cells = [of(a, factor) - of(b, factor) for a, b in pairs for factor in FACTORS]
    return case.each(*cells, corrected=True)


@judge("gu2021-q-cr-and-squash-semantic")
def _drawing_and_squash(case: Case) -> Verdict:
    """Open of R, whose units are ours: it scores a thousand times what is printed of it."""
    drawn = _more_compact(case, "mnist", (CR, R))
    because = "the 16 units of R are ours: the paper does not say what it is"
    return joined(without_lean(drawn, because), _more_compact(case, "mnist", (CR_SF, CR)))


@judge("gu2021-q-dr-reduces-compactness")
def _routing_reduces(case: Case) -> Verdict:
    return _more_compact(case, "mnist", (CR_SF, CAPSNET))


@judge("gu2021-q-cr-separates-classes")
def _separates_classes(case: Case) -> Verdict:
    """By the silhouette. Open, since the paper describes neither the points nor the networks."""

    def of(model: str) -> Values:
        return case.values("silhouette", model, data="toy-2d", kernel=1)

    because = "the points are ours, and what the decoder sees is masked by the true class"
    return without_lean(case.each(of(CR) - of(R)), because)


@judge("gu2021-q-perturbation-range")
def _perturbation_range(case: Case) -> Verdict:
    """How many times as far the drawing changes, seed by seed."""
    ours, theirs = (case.values("change.0.2", model, data="mnist") for model in (CAPSNET, R))
    return case.bound((ours / theirs).greater(case.threshold))
