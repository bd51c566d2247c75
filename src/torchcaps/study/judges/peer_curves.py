"""Statements of [peer2022] about how soon networks learn: by the accuracy after every epoch.

The protocol holds no images out, so it is the accuracy of training images.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from torchcaps.analysis import curves
from torchcaps.study.claim import Claim
from torchcaps.study.judges.evidence import Evidence, Values
from torchcaps.study.judges.rules import Cell, each
from torchcaps.study.progress import ends_of_epochs
from torchcaps.study.verdict import StatementVerdict

__all__ = ["JUDGES"]

DYNAMIC, EM = "peer_deep_dynamic", "peer_deep_em"
MEASURED = "training_sample_accuracy"
# Rows hold numbers of 32 bits, in which 0.95 is a little less.
LEVEL = 0.95 - 1e-6
# Networks, their depth, and how each says that it has no bias, and that it has one.
SHALLOW: tuple[tuple[str, int, tuple[Any, Any]], ...] = (
    (EM, 5, (False, True)),
    (DYNAMIC, 2, ("none", "added")),
    (DYNAMIC, 3, ("none", "added")),
)


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


JUDGES: Mapping[str, Callable[[Claim, Evidence], StatementVerdict | None]] = {
    "peer2022-q-bias-converges-faster": _converges_faster,
}
