"""Statements of [tsai2020]: accuracies on CIFAR and DiverseMultiMNIST and how they vary, and how
training goes, by what every epoch measured and by iterations that are chosen on validation images.
"""

from functools import partial
from itertools import pairwise
from typing import Any

from torchcaps.analysis import curves
from torchcaps_claims.judges.case import (
    Case,
    Verdict,
    confirming,
    fails,
    joined,
    judge,
    judge_each,
    open_if,
    without_lean,
)
from torchcaps_claims.judges.values import Cell, Values, most, rises, slopes
from torchcaps_claims.sizes import parameters_of
from torchcaps_claims.verdict import StatementVerdict

ITERATIONS = range(1, 6)
ROUTINGS = ("inverted", "dynamic", "em")
BACKBONES = ("simple", "resnet")
CLASSES = (10, 100)
RESNETS = {10: "resnet18", 100: "tsai_resnet18_c100"}
VECTOR, MATRIX, CNN, FCPOOL = (
    f"tsai_dmm_{kind}" for kind in ("vector", "matrix", "cnn", "cnn_fcpool")
)
SIMPLE = "tsai_inverted_simple_c10"
MEASURED = "validation_accuracy"
# A run that has nothing above it has collapsed, in percent.
COLLAPSED = 12.0
# What a run counts as that diverged, in percent: ten classes by chance.
DIVERGED = 10.0
# The iteration after which poses should be at rest, and a relative change that is no rest.
AT_REST, STILL_MOVES = 50, 0.1


def _accuracy(case: Case, model: str = SIMPLE, **chosen: Any) -> Values:
    return case.values("accuracy", model, **chosen)


def _cifar(
    case: Case, routing: str, n: int = 10, backbone: str = "simple", **chosen: Any
) -> Values:
    # Networks with EM routing are trained by spread loss.
    loss = {"loss": "spread"} if routing == "em" else {}
    model = f"tsai_{routing}_{backbone}_c{n}"
    return _accuracy(case, model, **{"data": f"cifar{n}", **loss, **chosen})


def _overlaid(case: Case, model: str, **chosen: Any) -> Values:
    return _accuracy(case, model, data="diverse-multi-mnist", **chosen)


def _slope(case: Case, routing: str, **chosen: Any) -> Values:
    """Points an iteration, seed by seed."""
    return slopes({t: _cifar(case, routing, iterations=t, **chosen) for t in ITERATIONS})


judge_each(
    {
        "tsai2020-q-perf-increases-with-iterations": lambda case: [_slope(case, "inverted")],
        "tsai2020-q-dr-drops-with-iterations": lambda case: [_slope(case, "dynamic").less()],
        "tsai2020-q-inv-gt-dr-gt-em": lambda case: _gaps_of_routings(case),
        "tsai2020-q-resnet-backbone-helps": lambda case: [
            _cifar(case, r, n, "resnet") - _cifar(case, r, n) for r in ROUTINGS for n in CLASSES
        ],
        "tsai2020-q-simple-below-cnn": lambda case: [
            _accuracy(case, f"tsai_cnn_c{n}", data=f"cifar{n}")
            - most(_cifar(case, r, n) for r in ROUTINGS)
            for n in CLASSES
        ],
        "tsai2020-q-inv-beats-dr-dmm": lambda case: [
            _overlaid(case, VECTOR) - _overlaid(case, "tsai_dmm_vector_dynamic")
        ],
        "tsai2020-q-routing-beats-pooling": lambda case: [
            _overlaid(case, VECTOR) - _overlaid(case, other) for other in (CNN, FCPOOL)
        ],
        "tsai2020-q-jitters": lambda case: [
            _jitter(case, iterations=5) - _jitter(case, iterations=1)
        ],
        "tsai2020-q-pose-dim-reduces-jitter": lambda case: [
            _jitter(case, iterations=5) - _jitter(case, f"{SIMPLE}_d{d}", iterations=5)
            for d in (36, 64)
        ],
        # Of two to five iterations, for the uniform pass is what they are compared with.
        "tsai2020-q-gain-over-uniform-pass": lambda case: [
            _at_its_best(case, model, ITERATIONS[1:], data=data)
            - _accuracy(case, model, data=data, iterations=1)
            for backbone in BACKBONES
            for model, data in [(f"tsai_inverted_{backbone}_c{n}", f"cifar{n}") for n in CLASSES]
        ],
        # Each network at the number of iterations that is best for it.
        "tsai2020-q-activations-hurt": lambda case: [
            _at_its_best(case, SIMPLE, ITERATIONS)
            - _at_its_best(case, SIMPLE, ITERATIONS, activations=True)
        ],
    }
)


def _gaps_of_routings(case: Case) -> list[Cell]:
    """Compare neighbours, eight differences, and two gaps on ten and on a hundred classes."""
    cells = []
    for backbone in BACKBONES:
        of = {(r, n): _cifar(case, r, n, backbone) for r in ROUTINGS for n in CLASSES}
        cells += [Cell(of[a, n], against=of[b, n]) for n in CLASSES for a, b in pairwise(ROUTINGS)]
        ten, hundred = (of["inverted", n] - of["em", n] for n in CLASSES)
        cells.append(Cell(hundred, against=ten))
    return cells


@judge("tsai2020-q-em-best-at-2")
def _em_best_at_two(case: Case) -> Verdict:
    """More than a point above every other number; contradicted by one that is better."""
    best = _cifar(case, "em", iterations=2)
    gains = [best - _cifar(case, "em", iterations=t) for t in (1, 3, 4, 5)]
    by_far = case.bound(*(gain.greater(case.threshold) for gain in gains))
    return joined(case.each(*gains, corrected=True), confirming(by_far))


@judge("tsai2020-q-sequential-no-correlation")
def _sequential_does_not_rise(case: Case) -> Verdict:
    """The slope of concurrent routing is the larger, and that of sequential routing not above 0."""
    alone = _slope(case, "inverted", schedule="sequential")
    both = _slope(case, "inverted") - alone
    found = case.bound(alone)
    if found is None:
        return None
    if found.word == "holds":
        return StatementVerdict("fails", found.ours, "less", 0.0)
    return confirming(case.each(both))


@judge("tsai2020-q-matches-resnet18")
def _matches_resnet(case: Case) -> Verdict:
    """Ask whether it is as accurate within half a point; more than that below contradicts it."""
    within, ratio = case.threshold["equivalence"], case.threshold["parameter_ratio"]
    for n, resnet in RESNETS.items():
        assert parameters_of(resnet) >= ratio * parameters_of(f"tsai_inverted_resnet_c{n}")
    gains = [
        _cifar(case, "inverted", n, "resnet") - _accuracy(case, resnet, data=f"cifar{n}")
        for n, resnet in RESNETS.items()
    ]
    not_lower = case.each(*(gain.greater(-within) for gain in gains))
    return joined(not_lower, confirming(case.each(*(gain.within(within) for gain in gains))))


@judge("tsai2020-q-ce-at-least-as-good")
def _usual_loss_as_good(case: Case) -> Verdict:
    """Not worse by 0.3 points; contradicted by a loss that is better."""
    plain, overlaid = _cifar(case, "inverted"), _overlaid(case, VECTOR)
    others = ("margin", "spread")
    gains = [plain - _cifar(case, "inverted", loss=other) for other in others]
    gains += [overlaid - _overlaid(case, VECTOR, loss=other) for other in others]
    not_beaten = case.each(*gains)
    if fails(not_beaten):
        return not_beaten
    return confirming(case.bound(*(gain.greater(case.threshold) for gain in gains)))


@judge("tsai2020-q-vector-vs-matrix")
def _vectors_beat_matrices(case: Case) -> Verdict:
    """More accurate, with more parameters. It must need more memory and time as well, which no
    record has, so that this may fail and cannot hold."""
    assert parameters_of(VECTOR) > parameters_of(MATRIX)
    found = case.each(_overlaid(case, VECTOR) - _overlaid(case, MATRIX))
    return open_if(True, found, "no record has what memory and time both need", word="holds")


@judge("tsai2020-q-smallest-variance")
def _varies_least(case: Case) -> Verdict:
    """Over seeds and one to five iterations, against each of the other two."""
    of = {}
    for routing in ROUTINGS:
        by_t = [_cifar(case, routing, iterations=t) for t in ITERATIONS]
        seeds = sorted(set.intersection(*map(set, by_t)))
        of[routing] = {seed: [values[seed] for values in by_t] for seed in seeds}
    ours, *others = of.values()
    return joined(*(case.varies(ours, other, "less", case.threshold) for other in others))


# How training goes.


def _jitter(case: Case, model: str = SIMPLE, **chosen: Any) -> Values:
    """Take the jitter of the epochs before the rate drops for the first time."""
    first, *_ = case.recipe(model, **chosen).get("milestones") or (None,)
    return case.of_curves(lambda curve: curves.jitter(curve[:first]), MEASURED, model, **chosen)


def _time_to(level: float, case: Case, model: str = SIMPLE, **chosen: Any) -> Values:
    """Epochs to a validation accuracy; all of them where it is never reached, or training
    diverged."""
    found = case.of_curves(partial(_first, level), MEASURED, model, **chosen)
    for seed in case.failed(model, **chosen):
        found[seed] = float(case.recipe(model, **chosen)["epochs"])
    return found


def _first(level: float, curve: tuple[float, ...]) -> float:
    epochs = range(1, len(curve) + 1)
    return curves.time_to(level, epochs, curve) or len(curve)


def _area(case: Case, model: str) -> Values:
    def area(curve: tuple[float, ...]) -> float:
        return curves.area(range(len(curve)), curve)

    return case.of_curves(area, MEASURED, model, data="diverse-multi-mnist")


def _at_its_best(case: Case, model: str, among: range, **chosen: Any) -> Values:
    """Accuracy at that of some numbers of iterations that is best on validation images, seed by
    seed."""
    tests = {t: _accuracy(case, model, iterations=t, **chosen) for t in among}
    held_out = {t: case.curves(MEASURED, model, iterations=t, **chosen) for t in among}
    common = set.intersection(*(set(tests[t]) & set(held_out[t]) for t in among))
    best = {seed: max(among, key=lambda t: held_out[t][seed][-1]) for seed in sorted(common)}
    return Values({seed: tests[t][seed] for seed, t in best.items()})


@judge("tsai2020-q-no-layernorm-collapse")
def _collapses_without_norm(case: Case) -> Verdict:
    """Contradicted by one number of iterations at which little is lost, or by an accuracy above
    chance at five."""
    limits = case.threshold

    def bare(t: int) -> Values:
        chosen: dict[str, Any] = {"iterations": t, "layer_norm": False}
        lost = dict.fromkeys(case.failed(SIMPLE, **chosen), DIVERGED)
        return Values({**_accuracy(case, **chosen), **lost})

    drops = [_accuracy(case, iterations=t) - bare(t) for t in ITERATIONS]
    lost = [*(x.greater(limits["drop"]) for x in drops), bare(5).less(limits["chance_accuracy"])]
    probability = case.values("confidence", SIMPLE, iterations=5, layer_norm=False)
    uniform = case.bound(probability.less(limits["max_probability"]))
    return joined(case.bound(*lost), confirming(uniform))


@judge("tsai2020-q-layernorm-stabilises")
def _norm_stabilises(case: Case) -> Verdict:
    """Sooner at 60 %, at two and at three iterations, with no more runs that collapse. Where none
    comes to 60 % all take as long."""
    cells, is_safe, comes_there = [], True, False
    for t in (2, 3):
        bare, normed = (
            _time_to(0.6, case, iterations=t, layer_norm=layer_norm) for layer_norm in (False, True)
        )
        cells.append(bare - normed)
        for layer_norm in (False, True):
            best = case.of_curves(max, MEASURED, SIMPLE, iterations=t, layer_norm=layer_norm)
            comes_there = comes_there or max(best.values(), default=0) >= 0.6
        without, with_it = (_collapsed(case, iterations=t, layer_norm=n) for n in (False, True))
        is_safe = is_safe and sum(with_it) * len(without) <= sum(without) * len(with_it)
    if not comes_there:
        return without_lean(case.each(*cells), "no network comes to 60 %")
    because = "more runs collapse with LayerNorm"
    return open_if(not is_safe, case.each(*cells), because, word="holds")


def _collapsed(case: Case, **chosen: Any) -> list[bool]:
    """Say of every run whether it ended at random or diverged."""
    ended = [accuracy < COLLAPSED for accuracy in _accuracy(case, **chosen).values()]
    return ended + [True] * len(case.failed(SIMPLE, **chosen))


@judge("tsai2020-q-zero-init-ok")
def _start_hardly_matters(case: Case) -> Verdict:
    """Ask for as much accuracy from drawn and from learned poses, and for slower drawn ones."""
    zero, drawn, learned = (_accuracy(case, start=x) for x in ("none", "random", "learned"))

    soon, late = (
        case.of_curves(lambda curve: _first(0.9 * curve[-1], curve), MEASURED, SIMPLE, start=start)
        for start in ("none", "random")
    )
    same = case.each(*((x - zero).within(case.threshold) for x in (drawn, learned)))
    return joined(same, case.each(late - soon))


@judge("tsai2020-q-dmm-converges-better")
def _converges_better(case: Case) -> Verdict:
    """A larger area, and 75 % not later on average."""

    on = {"data": "diverse-multi-mnist"}
    ours, others = _time_to(0.75, case, VECTOR, **on), (CNN, FCPOOL)
    areas = [_area(case, VECTOR) - _area(case, other) for other in others]
    later = [sum((ours - _time_to(0.75, case, other, **on)).values()) for other in others]
    found = case.each(*areas, corrected=True)
    return open_if(max(later) > 0, found, "it comes to 75 % later", word="holds")


@judge("tsai2020-q-concurrent-stabilises")
def _concurrent_stabilises(case: Case) -> Verdict:
    """At three and at five iterations sequential routing jitters more, and its accuracies vary
    more over seeds."""
    jitters, variances = [], []
    for t in (3, 5):
        each: dict[str, Any] = {"iterations": t, "schedule": "sequential"}
        other: dict[str, Any] = {**each, "schedule": "concurrent"}
        jitters.append(_jitter(case, **each) - _jitter(case, **other))
        variances.append(case.varies(_ones(case, **each), _ones(case, **other), "greater"))
    return joined(case.each(*jitters), *variances)


def _ones(case: Case, **chosen: Any) -> dict[int, tuple[float]]:
    """One accuracy a seed."""
    return {seed: (value,) for seed, value in _accuracy(case, **chosen).items()}


@judge("tsai2020-q-fixed-point")
def _comes_to_rest(case: Case) -> Verdict:
    """Ask of every network that the poses of classes move less and less, and hardly from iteration
    50 to 51; one whose poses move by more than a tenth then contradicts it."""
    ends, falls = [], True
    for model in (SIMPLE, "tsai_inverted_resnet_c10"):
        for t in range(2, 6):
            moved = {
                k: case.values(f"fixed_point_distance.{k}", model, iterations=t)
                for k in range(1, AT_REST + 1)
            }
            ends.append(moved[AT_REST])
            falls = falls and all(order < 0 for order in rises(moved).values())
    far = case.bound(*(end.less(STILL_MOVES) for end in ends))
    if fails(far):
        return far
    near = case.bound(*(end.less(case.threshold) for end in ends))
    if near is None or not all(ends):
        return None
    if falls:
        return confirming(near)
    return open_if(True, near, "poses do not move less from each iteration to the next")
