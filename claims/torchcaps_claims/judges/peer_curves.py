"""Statements of [peer2022] about how soon networks learn: by the accuracy after every epoch.

The protocol holds no images out, so it is the accuracy of training images.
"""

import math
from collections.abc import Mapping
from typing import Any

from torchcaps.analysis import curves
from torchcaps.study.intervals import Interval, difference_interval, mean_interval
from torchcaps_claims.claim import Claim
from torchcaps_claims.judges.evidence import Evidence, Values
from torchcaps_claims.judges.rules import Cell, each, joined
from torchcaps_claims.judges.table import judge
from torchcaps_claims.onset import MEASURED, Onset, onset_in
from torchcaps_claims.progress import ends_of_epochs
from torchcaps_claims.verdict import StatementVerdict, StatementWord

DYNAMIC, EM = "peer_deep_dynamic", "peer_deep_em"
# Rows hold numbers of 32 bits, in which 0.95 is a little less.
LEVEL = 0.95 - 1e-6
# Networks, their depth, and how each says that it has no bias, and that it has one.
SHALLOW: tuple[tuple[str, int, tuple[Any, Any]], ...] = (
    (EM, 5, (False, True)),
    (DYNAMIC, 2, ("none", "added")),
    (DYNAMIC, 3, ("none", "added")),
)
# Depths of EM; without a bias the last two never begin, in so many epochs.
DEPTHS, NEVER, EPOCHS = range(5, 10), (8, 9), 50
Onsets = Mapping[int, Onset]


@judge("peer2022-q-bias-converges-faster")
def _converges_faster(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    cells = [
        Cell(_sooner(*(_arrivals(evidence, model, n_layers=n, bias=bias) for bias in biases)))
        for model, n, biases in SHALLOW
    ]
    return each(claim, cells, corrected=True)


# The step of arrival, infinity where there is none, and the last step.
Arrivals = Mapping[int, tuple[float, int]]


def _arrivals(evidence: Evidence, model: str, **chosen: Any) -> Arrivals:
    recipe = evidence.recipe(model, data="mnist", **chosen)
    found = {}
    for seed, curve in evidence.curves(MEASURED, model, data="mnist", **chosen).items():
        ends = ends_of_epochs(recipe, len(curve))
        step = curves.time_to(LEVEL, ends, curve)
        found[seed] = (math.inf if step is None else step, ends[-1])
    return found


def _sooner(first: Arrivals, second: Arrivals) -> Values:
    """Steps by which the second arrives before the first. One that does not arrive counts with its
    last step, so that the difference is no smaller than shown; of a seed in which neither arrives
    nothing is known."""
    return {
        seed: min(first[seed]) - min(second[seed])
        for seed in first
        if seed in second and min(first[seed][0], second[seed][0]) < math.inf
    }


@judge("peer2022-q-bias-starts-immediately")
def _starts_immediately(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Rows of epochs tell between which steps learning began. Whatever the step between them was,
    it must be soon with a bias, and without one late and later with every layer."""
    soon, late = (
        {n: _onsets(evidence, n_layers=n, bias=bias) for n in DEPTHS} for bias in (True, False)
    )
    limit = claim.conditions["threshold"]
    return joined(
        *(_begins_soon(claim, each, limit) for each in soon.values()),
        *(_never_begins(claim, late[n], _epochs(evidence, n)) for n in NEVER),
        _begins_late(claim, late[5], limit),
        *(_begins_later(claim, late[n], late[n + 1]) for n in (5, 6)),
    )


def _onsets(evidence: Evidence, **chosen: Any) -> Onsets:
    recipe = evidence.recipe(EM, data="mnist", **chosen)
    by_seed = evidence.curves(MEASURED, EM, data="mnist", **chosen)
    return {seed: onset_in(recipe, curve) for seed, curve in by_seed.items()}


def _epochs(evidence: Evidence, n: int) -> int:
    epochs: int = evidence.recipe(EM, data="mnist", n_layers=n, bias=False).get("epochs", 0)
    return epochs


def _begins_soon(claim: Claim, onsets: Onsets, limit: float) -> StatementVerdict | None:
    """On average; not so where the 95 % interval of the least that it can be lies above."""
    if not onsets:
        return None
    enough = _are_enough(claim, onsets)
    least, most = _interval(_at_least(onsets)), _interval(_at_most(onsets) or _at_least(onsets))
    if enough and least.low is not None and least.low > limit:
        return StatementVerdict("fails", least, "less", limit)
    is_soon = enough and bool(_at_most(onsets)) and most.mean < limit
    return StatementVerdict("holds" if is_soon else "undecided", most, "less", limit)


def _begins_late(claim: Claim, onsets: Onsets, limit: float) -> StatementVerdict | None:
    """On average, and not sooner than so; that it does leaves the statement open."""
    if not onsets:
        return None
    ours = _interval(_at_least(onsets))
    is_late = _are_enough(claim, onsets) and ours.mean >= limit
    return StatementVerdict("holds" if is_late else "undecided", ours, "greater", limit)


def _begins_later(claim: Claim, first: Onsets, second: Onsets) -> StatementVerdict | None:
    """The second on average no sooner than the first at its latest, which must have begun; that it
    is not later leaves the statement open."""
    if not first or not second:
        return None
    shallow = _at_most(first) or _at_least(first)
    later = difference_interval([*_at_least(second).values()], [*shallow.values()])
    enough = _are_enough(claim, first) and _are_enough(claim, second)
    is_later = enough and bool(_at_most(first)) and later.mean >= 0
    return StatementVerdict("holds" if is_later else "undecided", later, "greater", 0.0)


def _never_begins(claim: Claim, onsets: Onsets, epochs: int) -> StatementVerdict | None:
    """In no seed; fails where it begins in most of them. What is shown is the share of those that
    begin."""
    if not onsets:
        return None
    begun = {seed: float(onset.by is not None) for seed, onset in onsets.items()}
    ours = _interval(begun)
    word: StatementWord = "undecided"
    if _are_enough(claim, onsets):
        if ours.mean > 0.5:
            word = "fails"
        elif not any(begun.values()) and epochs >= EPOCHS:
            word = "holds"
    return StatementVerdict(word, ours, "less", 0.5)


def _are_enough(claim: Claim, onsets: Onsets) -> bool:
    least: int = claim.conditions["n_seeds_min"]
    return len(onsets) >= least


def _at_least(onsets: Onsets) -> Values:
    return {seed: float(onset.after) for seed, onset in onsets.items()}


def _at_most(onsets: Onsets) -> Values:
    """Nothing where learning never began in one of the seeds."""
    found = {seed: float(each.by) for seed, each in onsets.items() if each.by is not None}
    return found if len(found) == len(onsets) else {}


def _interval(values: Values) -> Interval:
    return mean_interval([*values.values()])
