"""Statements of [tsai2020] about accuracies on CIFAR and DiverseMultiMNIST, and how they vary."""

from typing import Any

from torchcaps_claims.claim import Claim
from torchcaps_claims.judges.evidence import Evidence, Values
from torchcaps_claims.judges.rules import (
    Cell,
    confirming,
    each,
    joined,
    left_open,
    minus,
    most,
    slopes,
    varies,
)
from torchcaps_claims.judges.table import judge
from torchcaps_claims.sizes import parameters_of
from torchcaps_claims.verdict import StatementVerdict

ITERATIONS = range(1, 6)
ROUTINGS = ("inverted", "dynamic", "em")
CLASSES = (10, 100)
RESNETS = {10: "resnet18", 100: "tsai_resnet18_c100"}
VECTOR, MATRIX, CNN, FCPOOL = (
    f"tsai_dmm_{kind}" for kind in ("vector", "matrix", "cnn", "cnn_fcpool")
)


def _cifar(
    evidence: Evidence, routing: str, n: int = 10, backbone: str = "simple", **chosen: Any
) -> Values:
    data = f"cifar{n}"
    # Networks with EM routing are trained by spread loss.
    chosen = {"data": data, **({"loss": "spread"} if routing == "em" else {}), **chosen}
    return evidence.values("accuracy", f"tsai_{routing}_{backbone}_c{n}", **chosen)


def _slope(evidence: Evidence, routing: str, **chosen: Any) -> Values:
    """Points an iteration, seed by seed."""
    return slopes({t: _cifar(evidence, routing, iterations=t, **chosen) for t in ITERATIONS})


@judge("tsai2020-q-perf-increases-with-iterations")
def _rises_with_iterations(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return each(claim, [Cell(_slope(evidence, "inverted"))])


@judge("tsai2020-q-dr-drops-with-iterations")
def _dynamic_drops(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return each(claim, [Cell(_slope(evidence, "dynamic"), "less")])


@judge("tsai2020-q-em-best-at-2")
def _em_best_at_two(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """More than a point above every other number; contradicted by one that is better."""
    best = _cifar(evidence, "em", iterations=2)
    gains = [minus(best, _cifar(evidence, "em", iterations=t)) for t in (1, 3, 4, 5)]
    better = each(claim, [Cell(gain) for gain in gains], corrected=True)
    threshold = claim.conditions["threshold"]
    by_far = each(claim, [Cell(gain, "greater", threshold) for gain in gains], one_sided=False)
    return joined(better, confirming(by_far))


@judge("tsai2020-q-sequential-no-correlation")
def _sequential_does_not_rise(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """The slope of concurrent routing is the larger, and that of sequential routing not above 0."""
    alone = _slope(evidence, "inverted", schedule="sequential")
    both = minus(_slope(evidence, "inverted"), alone)
    rises = each(claim, [Cell(alone)], one_sided=False)
    if rises is not None and rises.word == "holds":
        return StatementVerdict("fails", rises.ours, "less", 0.0)
    return None if rises is None else confirming(each(claim, [Cell(both)]))


@judge("tsai2020-q-inv-gt-dr-gt-em")
def _order_of_routings(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Eight differences of neighbours, and two of gaps that are larger on a hundred classes."""
    cells = []
    for backbone in ("simple", "resnet"):
        of = {(r, n): _cifar(evidence, r, n, backbone) for r in ROUTINGS for n in CLASSES}
        for n in CLASSES:
            cells.append(Cell(of["inverted", n], against=of["dynamic", n]))
            cells.append(Cell(of["dynamic", n], against=of["em", n]))
        gaps = [minus(of["inverted", n], of["em", n]) for n in CLASSES]
        cells.append(Cell(gaps[1], against=gaps[0]))
    return each(claim, cells, corrected=True)


@judge("tsai2020-q-resnet-backbone-helps")
def _resnet_helps(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    cells = [
        Cell(minus(_cifar(evidence, r, n, "resnet"), _cifar(evidence, r, n)))
        for r in ROUTINGS
        for n in CLASSES
    ]
    return each(claim, cells, corrected=True)


@judge("tsai2020-q-simple-below-cnn")
def _simple_below_convnet(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    cells = []
    for n in CLASSES:
        convnet = evidence.values("accuracy", f"tsai_cnn_c{n}", data=f"cifar{n}")
        best = most(_cifar(evidence, r, n) for r in ROUTINGS)
        cells.append(Cell(minus(convnet, best)))
    return each(claim, cells, corrected=True)


@judge("tsai2020-q-matches-resnet18")
def _matches_resnet(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """As accurate within half a point; contradicted where it is lower by more than that."""
    threshold = claim.conditions["threshold"]
    within, ratio = threshold["equivalence"], threshold["parameter_ratio"]
    for n, resnet in RESNETS.items():
        assert parameters_of(resnet) >= ratio * parameters_of(f"tsai_inverted_resnet_c{n}")
    differences = [
        minus(
            _cifar(evidence, "inverted", n, "resnet"),
            evidence.values("accuracy", resnet, data=f"cifar{n}"),
        )
        for n, resnet in RESNETS.items()
    ]
    same = each(claim, [Cell(values, "within", within) for values in differences])
    not_lower = each(claim, [Cell(values, "greater", -within) for values in differences])
    return joined(not_lower, confirming(same))


@judge("tsai2020-q-inv-beats-dr-dmm")
def _inverted_beats_dynamic(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    gain = minus(_overlaid(evidence, VECTOR), _overlaid(evidence, "tsai_dmm_vector_dynamic"))
    return each(claim, [Cell(gain)])


@judge("tsai2020-q-routing-beats-pooling")
def _routing_beats_pooling(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    ours = _overlaid(evidence, VECTOR)
    cells = [Cell(minus(ours, _overlaid(evidence, pooled))) for pooled in (CNN, FCPOOL)]
    return each(claim, cells, corrected=True)


def _overlaid(evidence: Evidence, model: str, **chosen: Any) -> Values:
    return evidence.values("accuracy", model, data="diverse-multi-mnist", **chosen)


@judge("tsai2020-q-ce-at-least-as-good")
def _usual_loss_as_good(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Not worse by 0.3 points; contradicted by a loss that is better."""
    plain, overlaid = _cifar(evidence, "inverted"), _overlaid(evidence, VECTOR)
    others = ("margin", "spread")
    gains = [minus(plain, _cifar(evidence, "inverted", loss=other)) for other in others]
    gains += [minus(overlaid, _overlaid(evidence, VECTOR, loss=other)) for other in others]
    threshold = claim.conditions["threshold"]
    near = each(claim, [Cell(gain, "greater", threshold) for gain in gains], one_sided=False)
    not_beaten = each(claim, [Cell(gain) for gain in gains])
    if not_beaten is not None and not_beaten.word == "fails":
        return not_beaten
    return confirming(near)


@judge("tsai2020-q-vector-vs-matrix")
def _vectors_beat_matrices(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """More accurate, with more parameters. It must need more memory and time as well, which no
    record has, so that this may fail and cannot hold."""
    assert parameters_of(VECTOR) > parameters_of(MATRIX)
    gain = minus(_overlaid(evidence, VECTOR), _overlaid(evidence, MATRIX))
    found = each(claim, [Cell(gain)])
    if found is None or found.word != "holds":
        return found
    return left_open(found, "no record has what memory and time both need")


@judge("tsai2020-q-smallest-variance")
def _varies_least(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Over seeds and one to five iterations, against each of the other two."""
    of = {}
    for routing in ROUTINGS:
        by_t = [_cifar(evidence, routing, iterations=t) for t in ITERATIONS]
        seeds = sorted(set.intersection(*map(set, by_t)))
        of[routing] = {seed: [values[seed] for values in by_t] for seed in seeds}
    threshold = claim.conditions["threshold"]
    return joined(
        *(varies(claim, of["inverted"], of[o], "less", threshold) for o in ("dynamic", "em"))
    )
