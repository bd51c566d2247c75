"""Statements of [peer2022]: signs, depth with and without a bias, how soon networks learn, and
inputs of layers that are near opposites of each other.

The protocol holds no images out, so accuracies of epochs are those of training images.
"""

import math
import operator
from collections.abc import Mapping
from itertools import product
from typing import Any

from torchcaps.analysis import curves
from torchcaps.study.intervals import mean_interval
from torchcaps_claims.intervals import difference_interval
from torchcaps_claims.judges.case import (
    Case,
    Verdict,
    confirming,
    fails,
    holds,
    joined,
    judge,
    judge_each,
    open_if,
    without_lean,
)
from torchcaps_claims.judges.values import ONE_SIDED, Cell, Values, seed_by_seed
from torchcaps_claims.onset import MEASURED, Onset, ends_of_epochs, onset_in
from torchcaps_claims.ranks import spearman
from torchcaps_claims.setups import SETUPS
from torchcaps_claims.verdict import StatementVerdict, StatementWord, word_of

SETS = ("mnist", "fashion-mnist")
DYNAMIC, EM = "peer_deep_dynamic", "peer_deep_em"
SIGN_DYNAMIC, SIGN_EM = "peer_sign_dynamic", "peer_sign_em"
SIGN_LOSS = {"loss": SETUPS["peer-sign"].fields["loss"]}
# How each says that it has no bias, and that it has one.
BIAS: dict[str, tuple[Any, Any]] = {
    **dict.fromkeys((DYNAMIC, SIGN_DYNAMIC), ("none", "added")),
    **dict.fromkeys((EM, SIGN_EM), (False, True)),
}
DEPTHS = {DYNAMIC: range(2, 6), EM: range(5, 10)}
# Networks and depths that learn without a bias.
SHALLOW = ((DYNAMIC, 2), (DYNAMIC, 3), (EM, 5), (EM, 6))
# Depths of EM that never begin without a bias, in so many epochs.
NEVER, EPOCHS = (8, 9), 50
# Controls that keep v(-u) = -v(u).
ODD: tuple[dict[str, Any], ...] = (
    {"bias": "odd"},
    {"bias": "none", "squash": "exp"},
    {"bias": "none", "weight_std": 0.3},
)
GAIN, REACHED = 5.0, 1.0
# In percent: a network that is right more often has learned.
LEARNED = 50.0
BOTH_BIASES = "deep networks train with a bias that keeps the symmetry as well as with the paper's"
LATER = "after so short a training a network that has not learned may only learn later"
# Adam divides a gradient by its size and 1e-8: by less than a thousandth of that no weight moves.
STILL = 1e-11
# Rows hold numbers of 32 bits, in which 0.95 is a little less.
LEVEL = 0.95 - 1e-6
COSINE, CHI = "cancellation_cosine", "cancellation_chi"
# In percent: 10 points above chance, where learning begins.
BEGUN, BEGUN_ON_SIGNS = 20.0, 60.0
# A cosine above it is far from cancelling.
CONTRADICTED = -0.5
# What a bias may change where it is not needed, in points.
NOT_NEEDED = 0.3


def _chosen(model: str, n: int, bias: bool, data: str = "mnist") -> dict[str, Any]:
    return {"n_layers": n, "bias": BIAS[model][bias], "data": data}


def _deep(case: Case, model: str, n: int, data: str, *, bias: bool) -> Values:
    return case.values("accuracy", model, **_chosen(model, n, bias, data))


judge_each(
    {
        "peer2022-q-bias-helps-generally": lambda case: [
            _deep(case, model, n, data, bias=True) - _deep(case, model, n, data, bias=False)
            for data in SETS
            for model, n in SHALLOW
        ],
        "peer2022-q-bias-converges-faster": lambda case: [
            _sooner(*(_arrivals(case, model, n, bias) for bias in (False, True)))
            for model, n in ((EM, 5), (DYNAMIC, 2), (DYNAMIC, 3))
        ],
    }
)


# Signs, and depth.


def _signs(case: Case, *, bias: bool) -> list[Values]:
    return [
        case.values("accuracy@sign/train", model, bias=BIAS[model][bias], as_code=bias, **SIGN_LOSS)
        for model in (SIGN_DYNAMIC, SIGN_EM)
    ]


@judge("peer2022-q-sign-not-learnable")
def _sign_not_learnable(case: Case) -> Verdict:
    """Exactly one half of the symmetric set, in every seed of both networks; what is shown is the
    difference to it, in points."""
    cells = _signs(case, bias=False)
    if not all(cells):
        return None
    differences = [value - 50 for cell in cells for value in cell.values()]
    seeds = tuple(map(len, cells))
    word: StatementWord = "holds" if min(seeds) >= case.least else "undecided"
    if any(differences):
        word = "fails"
    return StatementVerdict(word, mean_interval(differences), "within", 0.0, seeds)


@judge("peer2022-q-sign-learnable-with-bias")
def _sign_learnable_with_bias(case: Case) -> Verdict:
    """Less than the bound does not refute it: 99 % is ours, and below it most have learned."""
    cells = [right.greater(case.threshold) for right in _signs(case, bias=True)]
    found = case.bound(*cells, corrected=True)
    because = "99 % is a bound of ours, and networks below it have learned most signs"
    return without_lean(found, because) if fails(found) else found


@judge("peer2022-q-bias-enables-depth")
def _bias_enables_depth(case: Case) -> Verdict:
    cells = [
        _deep(case, model, n, data, bias=True).greater(case.threshold)
        for data in SETS
        for model in (DYNAMIC, EM)
        for n in DEPTHS[model]
    ]
    return open_if(case.is_reduced, case.bound(*cells, corrected=True), LATER, word="fails")


@judge("peer2022-q-depth-rba-nobias")
def _dynamic_without_bias(case: Case) -> Verdict:
    return _up_to(case, DYNAMIC, trains=(2, 3), stays=(4, 5))


@judge("peer2022-q-depth-em-nobias")
def _em_without_bias(case: Case) -> Verdict:
    """The seventh layer costs accuracy, the eighth and the ninth cost everything."""
    six, seven = ([_deep(case, EM, n, data, bias=False) for data in SETS] for n in (6, 7))
    falls = case.each(*(Cell(a, against=b) for a, b in zip(six, seven, strict=True)))
    # That it costs nothing leaves the statement open.
    return joined(_up_to(case, EM, trains=(5, 6), stays=(8, 9)), confirming(falls))


def _up_to(case: Case, model: str, *, trains: tuple[int, ...], stays: tuple[int, ...]) -> Verdict:
    """Shallow networks learn, deep ones stay at chance. One that stays is contradicted only where
    it is trained: between chance and trained nothing is decided. A short training can show that a
    network learns, and not that it never does, but where no gradient moves it."""

    def right(n: int, data: str) -> Values:
        return _deep(case, model, n, data, bias=False)

    least = case.threshold["trained"]
    learn = case.bound(*(right(n, data).greater(least) for data in SETS for n in trains))
    parts = [open_if(case.is_reduced, learn, LATER, word="fails")]
    for data, n in product(SETS, stays):
        values = right(n, data)
        at_chance = case.bound(values.less(case.threshold["chance"]))
        is_trained = holds(case.bound(values.greater(least)))
        stays_there = at_chance if is_trained else confirming(at_chance)
        may_learn = case.is_reduced and not _is_still(case, model, n, data, values)
        parts.append(open_if(may_learn, stays_there, LATER, word="holds"))
    return joined(*parts)


def _is_still(case: Case, model: str, n: int, data: str, seeds: Values) -> bool:
    """Whether no epoch of any seed has a gradient that moves a weight below the classes."""
    parts = ("backbone", "primary", *(f"hidden_{k}" for k in range(2, n)), "classes")
    names = (f"gradient_norm/{part}" for part in parts)
    curves = [case.curves(name, model, **_chosen(model, n, False, data)) for name in names]
    return all(max(curve.get(seed, (math.inf,))) < STILL for curve in curves for seed in seeds)


@judge("peer2022-q-symmetry-causes-depth-failure")
def _symmetry_is_the_cause(case: Case) -> Verdict:
    """With a bias more than five points above every odd control, at four and at five layers. Open
    where an odd control comes within one point of a network that learned with a bias: deep networks
    train then, as it says, and not by breaking the symmetry."""
    pairs = [
        (
            _deep(case, DYNAMIC, n, data, bias=True),
            case.values("accuracy", DYNAMIC, n_layers=n, data=data, **control),
        )
        for data in SETS
        for n in (4, 5)
        for control in ODD
    ]
    # The more controls there are, the more often one is as good by chance.
    confidence = 1 - (1 - ONE_SIDED) / len(pairs)
    for biased, odd in pairs:
        gain = (biased - odd).less(REACHED)
        # That neither learns says nothing of the cause.
        if not gain.is_there or biased.mean <= LEARNED:
            continue
        if word_of(gain.interval(confidence), "less", REACHED, case.least) == "holds":
            found = StatementVerdict("fails", gain.interval(), "greater", GAIN)
            return without_lean(found, BOTH_BIASES)
    return confirming(case.bound(*((biased - odd).greater(GAIN) for biased, odd in pairs)))


# How soon networks learn.

# The step of arrival, infinity where there is none, and the last step.
Arrivals = Mapping[int, tuple[float, int]]
Onsets = Mapping[int, Onset]


def _arrivals(case: Case, model: str, n: int, bias: bool) -> Arrivals:
    chosen = _chosen(model, n, bias)
    recipe = case.recipe(model, **chosen)
    found = {}
    for seed, curve in case.curves(MEASURED, model, **chosen).items():
        ends = ends_of_epochs(recipe, len(curve))
        step = curves.time_to(LEVEL, ends, curve)
        found[seed] = (math.inf if step is None else step, ends[-1])
    return found


def _sooner(first: Arrivals, second: Arrivals) -> Values:
    """Steps by which the second arrives before the first. One that does not arrive counts with its
    last step, so that the difference is no smaller than shown; of a seed in which neither arrives
    nothing is known."""
    return Values(
        {
            seed: min(first[seed]) - min(second[seed])
            for seed in first
            if seed in second and min(first[seed][0], second[seed][0]) < math.inf
        }
    )


@judge("peer2022-q-bias-starts-immediately")
def _starts_immediately(case: Case) -> Verdict:
    """Rows of epochs tell between which steps learning began. Whatever the step between them was,
    it must be soon with a bias, and without one late and later with every layer."""
    soon, late = ({n: _onsets(case, n, bias) for n in DEPTHS[EM]} for bias in (True, False))
    return joined(
        *(_begins_soon(case, each) for each in soon.values()),
        *(_never_begins(case, n, late[n]) for n in NEVER),
        _begins_late(case, late[5]),
        *(_begins_later(case, late[n], late[n + 1]) for n in (5, 6)),
    )


def _onsets(case: Case, n: int, bias: bool) -> Onsets:
    chosen = _chosen(EM, n, bias)
    recipe = case.recipe(EM, **chosen)
    by_seed = case.curves(MEASURED, EM, **chosen)
    return {seed: onset_in(recipe, curve) for seed, curve in by_seed.items()}


def _begins_soon(case: Case, onsets: Onsets) -> Verdict:
    """On average; not so where the 95 % interval of the least that it can be lies above."""
    if not onsets:
        return None
    limit, is_known = case.threshold, bool(_at_most(onsets))
    least, most = _at_least(onsets).interval, (_at_most(onsets) or _at_least(onsets)).interval
    fails = len(onsets) >= case.least and least.low is not None and least.low > limit
    soon = is_known and most.mean < limit
    return case.decided(least if fails else most, "less", limit, holds=soon, fails=fails)


def _begins_late(case: Case, onsets: Onsets) -> Verdict:
    """On average, and not sooner than so; that it does leaves the statement open."""
    if not onsets:
        return None
    ours = _at_least(onsets).interval
    return case.decided(ours, "greater", case.threshold, holds=ours.mean >= case.threshold)


def _begins_later(case: Case, first: Onsets, second: Onsets) -> Verdict:
    """The second on average no sooner than the first at its latest, which must have begun; that it
    is not later leaves the statement open."""
    if not first or not second:
        return None
    shallow = _at_most(first) or _at_least(first)
    later = difference_interval([*_at_least(second).values()], [*shallow.values()])
    is_later = bool(_at_most(first)) and later.mean >= 0
    return case.decided(later, "greater", 0.0, holds=is_later)


def _never_begins(case: Case, n: int, onsets: Onsets) -> Verdict:
    """In no seed; fails where it begins in most of them. What is shown is the share of those that
    begin."""
    if not onsets:
        return None
    begun = Values({seed: float(onset.by is not None) for seed, onset in onsets.items()})
    epochs = case.recipe(EM, **_chosen(EM, n, False)).get("epochs", 0)
    never = not any(begun.values()) and epochs >= EPOCHS
    return case.decided(begun.interval, "less", 0.5, holds=never, fails=begun.mean > 0.5)


def _at_least(onsets: Onsets) -> Values:
    return Values({seed: float(onset.after) for seed, onset in onsets.items()})


def _at_most(onsets: Onsets) -> Values:
    """Nothing where learning never began in one of the seeds."""
    found = {seed: float(each.by) for seed, each in onsets.items() if each.by is not None}
    return Values(found if len(found) == len(onsets) else {})


# Inputs of layers that are near opposites of each other.


@judge("peer2022-q-relu-shields-first-layer")
def _relu_shields(case: Case) -> Verdict:
    """Behind a ReLU no component below zero and no near-antipodal pair, with a bias and without,
    and as accurate with it, where a bias is needed without the ReLU. What a bias gains there
    contradicts; what it costs does not."""

    def of(statistic: str, *, bias: bool) -> Values:
        return case.values(statistic, "capsnet", primary_relu=True, bias=bias, data="mnist")

    gain = of("accuracy", bias=True) - of("accuracy", bias=False)
    plain = (case.values("accuracy", "capsnet", bias=bias, data="mnist") for bias in (True, False))
    needed = case.each(operator.sub(*plain).greater(NOT_NEEDED))
    found = joined(
        case.each(gain.less(NOT_NEEDED)),
        confirming(case.each(gain.within(NOT_NEEDED))),
        *(
            _none(case, of(f"{name}.1", bias=bias))
            for name in ("negative_share", "antipodal_share")
            for bias in (False, True)
        ),
    )
    because = "without the ReLU a bias gains as little, so that nothing shows what it shields from"
    return found if holds(needed) or fails(found) else without_lean(found, because)


def _none(case: Case, shares: Values) -> Verdict:
    """Exactly none in every seed; another share leaves the statement open."""
    if not shares:
        return None
    return case.decided(shares.interval, "within", 0.0, holds=not any(shares.values()))


@judge("peer2022-q-negatives-grow-with-depth")
def _negatives_grow(case: Case) -> Verdict:
    """From layer to layer, before training, and after it in the seeds that learned anything; the
    nearest hundredth of the cosines must fall meanwhile."""
    shares, cosines = [], []
    for data in SETS:
        for model, n in ((DYNAMIC, 5), (EM, 9)):
            chosen = {"n_layers": n, "data": data}
            right = case.values("accuracy", model, **chosen)
            learned = [seed for seed, accuracy in right.items() if accuracy > BEGUN]
            # Of networks that stay at chance nothing is claimed.
            for when in ("_at_start", "") if learned or not right else ("_at_start",):
                share, cosine = (
                    _rising(case, f"{name}{when}", model, chosen)
                    for name in ("antipodal_share", "lowest_cosine")
                )
                seeds = share if when else learned
                shares.append(Values({seed: share[seed] for seed in seeds if seed in share}))
                cosines.append(sum(cosine[seed] for seed in seeds if seed in cosine))
    is_open = not all(total < 0 for total in cosines)
    because = "the nearest pairs do not come nearer from layer to layer"
    return open_if(is_open, case.each(*shares), because, word="holds")


def _rising(case: Case, name: str, model: str, chosen: Mapping[str, Any]) -> Values:
    """The correlation of ranks of a statistic with the number of its layer, seed by seed."""
    by_layer = [case.values(f"{name}.{k}", model, **chosen) for k in range(1, 10)]
    layers = [layer for layer in by_layer if layer]
    return seed_by_seed(lambda values: spearman(range(len(layers)), values), layers)


@judge("peer2022-q-gradient-cancellation")
def _cancels(case: Case) -> Verdict:
    """The cosine before training, and where learning never began the mean of it and of that after
    training, without a bias; and χ before training, without a bias less that with one. A cosine
    above −0.9 leaves it open, and one above −0.5 contradicts, but where they cancel by EM routing:
    the paper supposes it of no routing."""
    cosines, chis = [], []
    for model, begun, chosen in (
        (SIGN_DYNAMIC, BEGUN_ON_SIGNS, SIGN_LOSS),
        (DYNAMIC, BEGUN, {"n_layers": 4, "data": "mnist"}),
    ):
        start, end, right, without = (
            case.values(name, model, bias="none", **chosen)
            for name in (f"{COSINE}_at_start", COSINE, "accuracy", f"{CHI}_at_start")
        )
        waiting = {seed for seed in end if right.get(seed, 100.0) <= begun}
        cosines.append(
            Values({s: (x + end[s]) / 2 if s in waiting else x for s, x in start.items()})
        )
        chis.append(without - case.values(f"{CHI}_at_start", model, bias="added", **chosen))
    found = joined(
        confirming(case.each(*(cosine.less(case.threshold["cos"]) for cosine in cosines))),
        case.each(*(cosine.less(CONTRADICTED) for cosine in cosines)),
        case.each(*(chi.greater(case.threshold["chi_difference"]) for chi in chis)),
    )
    by_em = case.values(f"{COSINE}_at_start", SIGN_EM, bias=False, **SIGN_LOSS)
    is_split = fails(found) and holds(case.bound(by_em.less(CONTRADICTED)))
    because = "by EM routing gradients cancel, by dynamic routing not; the paper supposes it"
    return without_lean(found, because) if is_split else found
