"""Statements of [tsai2020] about how training goes: by what every epoch measured, and by iterations
that are chosen on validation images."""

from collections.abc import Mapping
from typing import Any

from torchcaps.analysis import curves
from torchcaps_claims.claim import Claim
from torchcaps_claims.judges.evidence import Evidence, Values
from torchcaps_claims.judges.rules import (
    Cell,
    confirming,
    each,
    joined,
    left_open,
    minus,
    rises,
    varies,
)
from torchcaps_claims.judges.table import judge
from torchcaps_claims.verdict import StatementVerdict

SIMPLE = "tsai_inverted_simple_c10"
BACKBONES = ("simple", "resnet")
CLASSES = (10, 100)
ITERATIONS = range(1, 6)
MEASURED = "validation_accuracy"
# A run that has nothing above it has collapsed, in percent.
COLLAPSED = 12.0
# What a run counts as that diverged, in percent: ten classes by chance.
DIVERGED = 10.0
# The iteration after which poses should be at rest, and a relative change that is no rest.
AT_REST, STILL_MOVES = 50, 0.1


def _accuracy(evidence: Evidence, model: str = SIMPLE, **chosen: Any) -> Values:
    return evidence.values("accuracy", model, **chosen)


def _or_diverged(evidence: Evidence, **chosen: Any) -> Values:
    lost = dict.fromkeys(evidence.failed(SIMPLE, **chosen), DIVERGED)
    return {**_accuracy(evidence, **chosen), **lost}


def _jitter(evidence: Evidence, model: str = SIMPLE, **chosen: Any) -> Values:
    """Of the epochs before the rate drops for the first time."""
    drops = evidence.recipe(model, **chosen).get("milestones") or (None,)
    by_seed = evidence.curves(MEASURED, model, **chosen)
    found = {seed: curves.jitter(curve[: drops[0]]) for seed, curve in by_seed.items()}
    return {seed: value for seed, value in found.items() if value is not None}


def _time_to(level: float, evidence: Evidence, model: str = SIMPLE, **chosen: Any) -> Values:
    """Epochs to a validation accuracy; all of them where it is never reached, or training
    diverged."""
    by_seed = evidence.curves(MEASURED, model, **chosen)
    found = {seed: _first(level, curve) for seed, curve in by_seed.items()}
    for seed in evidence.failed(model, **chosen):
        found[seed] = float(evidence.recipe(model, **chosen)["epochs"])
    return found


def _first(level: float, curve: tuple[float, ...]) -> float:
    epochs = range(1, len(curve) + 1)
    return curves.time_to(level, epochs, curve) or len(curve)


def _area(evidence: Evidence, model: str) -> Values:
    by_seed = evidence.curves(MEASURED, model, data="diverse-multi-mnist")
    return {seed: curves.area(range(len(curve)), curve) for seed, curve in by_seed.items()}


def _at_its_best(evidence: Evidence, model: str, among: range, **chosen: Any) -> Values:
    """Accuracy at that of some numbers of iterations that is best on validation images, seed by
    seed."""
    tests = {t: _accuracy(evidence, model, iterations=t, **chosen) for t in among}
    held_out = {t: evidence.curves(MEASURED, model, iterations=t, **chosen) for t in among}
    common = set.intersection(*(set(tests[t]) & set(held_out[t]) for t in among))
    best = {seed: max(among, key=lambda t: held_out[t][seed][-1]) for seed in sorted(common)}
    return {seed: tests[t][seed] for seed, t in best.items()}


@judge("tsai2020-q-jitters")
def _jitters(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    more = minus(_jitter(evidence, iterations=5), _jitter(evidence, iterations=1))
    return each(claim, [Cell(more)])


@judge("tsai2020-q-pose-dim-reduces-jitter")
def _larger_poses_jitter_less(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    usual = _jitter(evidence, iterations=5)
    cells = [
        Cell(minus(usual, _jitter(evidence, f"{SIMPLE}_d{d}", iterations=5))) for d in (36, 64)
    ]
    return each(claim, cells, corrected=True)


@judge("tsai2020-q-no-layernorm-collapse")
def _collapses_without_norm(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Contradicted by one number of iterations at which little is lost, or by an accuracy above
    chance at five."""
    limits = claim.conditions["threshold"]
    bare = [_or_diverged(evidence, iterations=t, layer_norm=False) for t in ITERATIONS]
    drops = [minus(_accuracy(evidence, iterations=t), bare[t - 1]) for t in ITERATIONS]
    lost = [Cell(drop, "greater", limits["drop"]) for drop in drops]
    lost.append(Cell(bare[-1], "less", limits["chance_accuracy"]))
    probability = evidence.values("confidence", SIMPLE, iterations=5, layer_norm=False)
    uniform = each(claim, [Cell(probability, "less", limits["max_probability"])], one_sided=False)
    return joined(each(claim, lost, one_sided=False), confirming(uniform))


@judge("tsai2020-q-layernorm-stabilises")
def _norm_stabilises(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Sooner at 60 %, at two and at three iterations, with no more runs that collapse."""
    cells, is_safe = [], True
    for t in (2, 3):
        sooner = [
            _time_to(0.6, evidence, iterations=t, layer_norm=layer_norm)
            for layer_norm in (False, True)
        ]
        cells.append(Cell(minus(*sooner)))
        without, normed = (_collapsed(evidence, iterations=t, layer_norm=n) for n in (False, True))
        is_safe = is_safe and sum(normed) * len(without) <= sum(without) * len(normed)
    found = each(claim, cells)
    if found is None or is_safe or found.word != "holds":
        return found
    return left_open(found, "more runs collapse with LayerNorm")


def _collapsed(evidence: Evidence, **chosen: Any) -> list[bool]:
    """Of every run whether it ended at random or diverged."""
    ended = [accuracy < COLLAPSED for accuracy in _accuracy(evidence, **chosen).values()]
    return ended + [True] * len(evidence.failed(SIMPLE, **chosen))


@judge("tsai2020-q-zero-init-ok")
def _start_hardly_matters(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """As accurate from poses that are drawn or learned, and slower from drawn ones."""
    threshold = claim.conditions["threshold"]
    of = {start: _accuracy(evidence, start=start) for start in ("none", "random", "learned")}
    same = [
        Cell(minus(of[start], of["none"]), "within", threshold) for start in of if start != "none"
    ]
    by_start = {
        start: evidence.curves(MEASURED, SIMPLE, start=start) for start in ("none", "random")
    }
    times = {
        start: {seed: _first(0.9 * curve[-1], curve) for seed, curve in by_seed.items()}
        for start, by_seed in by_start.items()
    }
    slower = each(claim, [Cell(minus(times["random"], times["none"]))])
    return joined(each(claim, same), slower)


@judge("tsai2020-q-dmm-converges-better")
def _converges_better(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """A larger area, and 75 % not later on average."""
    ours, cells, is_sooner = "tsai_dmm_vector", [], True
    data = {"data": "diverse-multi-mnist"}
    for other in ("tsai_dmm_cnn", "tsai_dmm_cnn_fcpool"):
        cells.append(Cell(minus(_area(evidence, ours), _area(evidence, other))))
        later = minus(
            _time_to(0.75, evidence, ours, **data), _time_to(0.75, evidence, other, **data)
        )
        is_sooner = is_sooner and sum(later.values()) <= 0
    found = each(claim, cells, corrected=True)
    if found is None or is_sooner or found.word != "holds":
        return found
    return left_open(found, "it comes to 75 % later")


@judge("tsai2020-q-gain-over-uniform-pass")
def _gains_over_the_uniform_pass(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Of two to five iterations, for the uniform pass is what they are compared with."""
    cells = []
    for backbone in BACKBONES:
        for n in CLASSES:
            model, data = f"tsai_inverted_{backbone}_c{n}", f"cifar{n}"
            uniform = _accuracy(evidence, model, data=data, iterations=1)
            cells.append(
                Cell(minus(_at_its_best(evidence, model, ITERATIONS[1:], data=data), uniform))
            )
    return each(claim, cells, corrected=True)


@judge("tsai2020-q-activations-hurt")
def _activations_hurt(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Each network at the number of iterations that is best for it."""
    without = _at_its_best(evidence, SIMPLE, ITERATIONS)
    squashed = _at_its_best(evidence, SIMPLE, ITERATIONS, activations=True)
    return each(claim, [Cell(minus(without, squashed))])


@judge("tsai2020-q-concurrent-stabilises")
def _concurrent_stabilises(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """At three and at five iterations sequential routing jitters more, and its accuracies vary
    more over seeds."""
    jitters, variances = [], []
    for t in (3, 5):
        first: dict[str, Any] = {"iterations": t, "schedule": "sequential"}
        second: dict[str, Any] = {"iterations": t, "schedule": "concurrent"}
        jitters.append(Cell(minus(_jitter(evidence, **first), _jitter(evidence, **second))))
        variances.append(varies(claim, _ones(evidence, first), _ones(evidence, second), "greater"))
    return joined(each(claim, jitters), *variances)


def _ones(evidence: Evidence, chosen: Mapping[str, Any]) -> dict[int, tuple[float]]:
    """One accuracy a seed."""
    return {seed: (value,) for seed, value in _accuracy(evidence, **chosen).items()}


@judge("tsai2020-q-fixed-point")
def _comes_to_rest(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Of every network the poses of classes move less and less, and hardly from iteration 50 to 51;
    contradicted by one whose poses move by more than a tenth then."""
    ends, falls = [], True
    for model in (SIMPLE, "tsai_inverted_resnet_c10"):
        for t in range(2, 6):
            moved = {
                k: evidence.values(f"fixed_point_distance.{k}", model, iterations=t)
                for k in range(1, AT_REST + 1)
            }
            ends.append(moved[AT_REST])
            falls = falls and all(order < 0 for order in rises(moved).values())
    threshold = claim.conditions["threshold"]
    far = each(claim, [Cell(end, "less", STILL_MOVES) for end in ends], one_sided=False)
    if far is not None and far.word == "fails":
        return far
    near = each(claim, [Cell(end, "less", threshold) for end in ends], one_sided=False)
    if near is None or not all(ends):
        return None
    if falls:
        return confirming(near)
    return left_open(near, "poses do not move less from each iteration to the next")
