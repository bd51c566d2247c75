"""Statements of [mitterreiter2023]: activity, deaths and dynamics of layers.

Layers of capsules are counted from the primary one, routings from the lowest, both from 1.

The paper trains until 99.2 % are right. Of a shorter training those seeds count that come within
two points of it.
"""

from itertools import pairwise
from statistics import fmean

from torchcaps.study.intervals import Interval, share_bounds
from torchcaps_claims.claim import Claim, find_claim
from torchcaps_claims.judges.at_the_stop import near_the_stop
from torchcaps_claims.judges.evidence import Evidence, Values
from torchcaps_claims.judges.mitterreiter_twins import (
    AFFNIST,
    GRID,
    LEAST_ARCHITECTURES,
    NET,
    of_moved,
)
from torchcaps_claims.judges.rules import (
    Cell,
    all_of,
    confirming,
    each,
    joined,
    left_open,
    mean_of,
    minus,
    most,
    one_of,
    slopes,
)
from torchcaps_claims.judges.table import judge
from torchcaps_claims.verdict import StatementVerdict, word_of

CLASSES, LAYERS, DEPTHS = 10, 5, range(2, 9)
# Routings between the first and the last.
INNER = (2, 3)
# As many networks of the grid as its plan has.
LEAST_OF_GRID = 6
# Layers of capsules by name, as rows of epochs have them.
NAMES = ("primary", *(f"hidden_{k}" for k in range(2, LAYERS)), "classes")
OF_DEATHS = ("dead_capsules", "revivals")
LARGEST_ACTIVE = 0.2
REVIVED = 0.01  # as many dead capsules may come back
STATED = ("rotation 20°", "shear 10°", "scale 0.8", "translation 4 px")


@judge("mitt2023-q-routing-almost-static")
@near_the_stop
def _almost_static(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """By dys, which is dyr times the targets that are alive. Where dyr is below the printed one, a
    higher dys says that fewer are dead."""
    limit = claim.conditions["threshold"]
    sums = each(
        claim, [Cell(of_moved(evidence, f"dys.{k}"), "less", limit) for k in INNER], one_sided=False
    )
    rates = all_of(
        claim,
        [
            Cell(of_moved(evidence, f"dyr.{k}"), "less", _printed(f"mitt2023-t1-layer{k}-dyr"))
            for k in INNER
        ],
    )
    if sums is None or sums.word != "fails" or rates is None or rates.word != "holds":
        return sums
    return left_open(
        sums, "by dyr it is more static than printed, and dys is higher since more targets live"
    )


def _printed(name: str) -> float:
    value = find_claim(name).value
    assert isinstance(value, float)
    return value


@judge("mitt2023-q-last-layer-more-dynamic")
@near_the_stop
def _last_more_dynamic(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return each(
        claim,
        [
            Cell(
                minus(
                    of_moved(evidence, f"{name}.4"),
                    most([of_moved(evidence, f"{name}.2"), of_moved(evidence, f"{name}.3")]),
                )
            )
            for name in ("dyr", "dys")
        ],
    )


@judge("mitt2023-q-all-affnist-models-similar")
@near_the_stop
def _all_similar(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Every routing strictly between the first and the last, of at least twelve architectures."""

    def of(images: str) -> list[dict[str, Values]]:
        names = [f"dyr.{k}@{images}/test" for k in DEPTHS]
        return [evidence.systems(name, GRID, routing="dynamic") for name in names]

    # Those of the second routing, of the third, and so on.
    found = next((rows for rows in map(of, AFFNIST) if rows[0]), of(AFFNIST[0]))
    cells = [
        Cell(values, "less", claim.conditions["threshold"])
        # A routing with one above it is not the last.
        for below, above in pairwise(found)
        for system, values in below.items()
        if system in above
    ]
    if len(found[1]) < LEAST_ARCHITECTURES:
        return None
    return each(claim, cells, one_sided=False, corrected=True)


@judge("mitt2023-q-cifar10-worse-dynamics")
@near_the_stop
def _worse_on_cifar(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    layers = range(1, LAYERS)
    colour = mean_of(evidence.values(f"dyr.{k}", NET, data="cifar10") for k in layers)
    digits = mean_of(of_moved(evidence, f"dyr.{k}") for k in layers)
    return each(claim, [Cell(colour, "less", against=digits)])


@judge("mitt2023-q-primecaps-always-active")
@near_the_stop
def _primary_always_active(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """At 0.1, and at 0.2, the largest of the row: the larger it is, the fewer are active. Where a
    seed has no rate at 0.2, its mean length m tells the least that it may be: lengths are one at
    most, so no more than (1 − m) / (1 − 0.2) of them lie below it."""
    means = of_moved(evidence, "cnm.1").items()
    least = {seed: 1 - (1 - mean) / (1 - LARGEST_ACTIVE) for seed, mean in means}
    rates = (of_moved(evidence, "car.1"), {**least, **of_moved(evidence, "car_twice.1")})
    limit = claim.conditions["threshold"]
    usual, twice = (each(claim, [Cell(r, "greater", limit)], one_sided=False) for r in rates)
    if usual is None or usual.word != "holds" or (twice is not None and twice.word == "holds"):
        return usual
    return left_open(usual, "its row asks for thresholds up to 0.2, where it is not certain")


@judge("mitt2023-q-cas-declines")
@near_the_stop
def _cas_declines(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return _declines(claim, evidence, "cas", range(1, LAYERS - 1))


@judge("mitt2023-q-cns-declines")
@near_the_stop
def _cns_declines(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return _declines(claim, evidence, "cns", range(1, LAYERS))


def _declines(
    claim: Claim, evidence: Evidence, name: str, layers: range
) -> StatementVerdict | None:
    cells = [
        Cell(minus(of_moved(evidence, f"{name}.{k}"), of_moved(evidence, f"{name}.{k + 1}")))
        for k in layers
    ]
    return each(claim, cells, corrected=True)


@judge("mitt2023-q-dead-increase-with-depth")
@near_the_stop
def _dead_increase(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """More deaths in the fourth layer than in the first, and no layer with fewer than the one
    below it: such a step lets the statement fail and need not be shown."""
    cdr = {k: of_moved(evidence, f"cdr.{k}") for k in range(1, LAYERS)}
    whole = each(claim, [Cell(minus(cdr[4], cdr[1]))])
    steps = [each(claim, [Cell(minus(cdr[k + 1], cdr[k]))]) for k in range(1, 4)]
    falling = [step for step in steps if step is not None and step.word == "fails"]
    return falling[0] if falling else whole


@judge("mitt2023-q-output-layer-no-dead")
@near_the_stop
def _no_dead_class(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Exactly none in every seed; fails where more than half of the seeds have one."""
    dead = of_moved(evidence, f"cds.{LAYERS}")
    if not dead:
        return None
    ours = Cell(dead).interval()
    enough = len(dead) >= claim.conditions["n_seeds_min"]
    if enough and sum(value >= 1 for value in dead.values()) > len(dead) / 2:
        return StatementVerdict("fails", ours, "within", 0.0)
    holds = enough and not any(dead.values())
    return StatementVerdict("holds" if holds else "undecided", ours, "within", 0.0)


@judge("mitt2023-q-active-less-than-classes")
@near_the_stop
def _fewer_than_classes(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """The sentence says what follows where fewer are active: where as many are as there are
    classes, or more, it is neither shown nor contradicted."""
    found = each(claim, [Cell(of_moved(evidence, "cas.4"), "less", CLASSES)], one_sided=False)
    if found is None or found.word != "fails":
        return found
    return left_open(found, "no fewer capsules are active than there are classes")


@judge("mitt2023-q-uniform-routing-better")
@near_the_stop
def _uniform_better(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """On affNIST and on CIFAR-10, at equal epochs."""
    digits = minus(
        of_moved(evidence, "accuracy", routing="uniform", stop_at=None),
        of_moved(evidence, "accuracy", stop_at=None),
    )
    colour = minus(
        evidence.values("accuracy", NET, data="cifar10", routing="uniform", stop_at=None),
        evidence.values("accuracy", NET, data="cifar10", stop_at=None),
    )
    return each(claim, [Cell(digits), Cell(colour)], corrected=True)


@judge("mitt2023-q-rba-causes-deaths")
@near_the_stop
def _routing_causes_deaths(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    uniform = {k: of_moved(evidence, f"cdr.{k}", routing="uniform") for k in range(2, LAYERS)}
    excess = each(claim, [Cell(minus(of_moved(evidence, "cdr.4"), uniform[4]))])
    none_dead = each(
        claim, [Cell(rate, "less", 0.05) for rate in uniform.values()], one_sided=False
    )
    return joined(excess, none_dead)


@judge("mitt2023-q-mhsa-no-vanishing")
@near_the_stop
def _attention_lives(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Fewer deaths, layers below the classes together, than by routing; which weights go on
    learning is shown without training, in tests/theory/test_own_weights.py."""
    layers = range(1, LAYERS)
    routed, attended = (
        mean_of(of_moved(evidence, f"cdr.{k}", model) for k in layers)
        for model in (NET, "mhsa_stack")
    )
    return each(claim, [Cell(minus(routed, attended))])


@judge("mitt2023-q-correlation-decreases")
@near_the_stop
def _correlation_decreases(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Every kind of change and every layer below the classes. It holds only where digits were also
    turned upside down, where some look like themselves again."""
    cells = [
        Cell(of_moved(evidence, f"spearman.{kind}.{k}"), "less", claim.conditions["threshold"])
        for kind in ("rotation", "translation", "scale", "shear")
        for k in range(1, LAYERS)
    ]
    found = each(claim, cells, one_sided=False, corrected=True)
    is_turned = bool(of_moved(evidence, "corr.rotation 180°.1"))
    if found is None or found.word != "holds" or is_turned:
        return found
    return left_open(found, "no digits were turned upside down")


@judge("mitt2023-q-primecaps-not-invariant")
@near_the_stop
def _primary_not_invariant(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """One of the changes is enough; all of them are needed to contradict it."""
    limit = claim.conditions["threshold"]
    return one_of(
        claim, [Cell(of_moved(evidence, f"corr.{each}.1"), "less", limit) for each in STATED]
    )


@judge("mitt2023-q-parse-trees-not-dynamic")
@near_the_stop
def _not_dynamic(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """By dyr, from which the paper argues, and by a distance of ours, which does not contradict it
    alone."""
    limits = claim.conditions["threshold"]
    cell = Cell(of_moved(evidence, "distance.different"), "less", limits["D"])
    distance = each(claim, [cell], one_sided=False)
    # One frozen routing of two leaves the statement open.
    rates = all_of(
        claim, [Cell(of_moved(evidence, f"dyr.{k}"), "less", limits["dyr"]) for k in (2, 3)]
    )
    words = [None if part is None else part.word for part in (distance, rates)]
    if distance is not None and words == ["fails", "holds"]:
        return left_open(distance, "by dyr, the measure of the paper, it holds")
    return joined(distance, rates)


@judge("mitt2023-q-different-tree-similar-image")
@near_the_stop
def _different_tree(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """The paper says that it can happen; that it happens seldom does not contradict it."""
    cell = Cell(of_moved(evidence, "share_as_far"), "greater", claim.conditions["threshold"])
    found = each(claim, [cell], one_sided=False)
    if found is None or found.word != "fails":
        return found
    return left_open(
        found, "it happens more seldom than its row asks for, and the paper says that it can"
    )


@judge("mitt2023-q-depth-limited-by-deaths")
@near_the_stop
def _depth_limited(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    def of(name: str, n: int, data: str, routing: str) -> Values:
        chosen = {"widths": ",".join(["16"] * (n - 1)), "routing": routing}
        if data == "affnist":
            return of_moved(evidence, name, GRID, **chosen)
        return evidence.values(name, GRID, data=data, **chosen)

    parts = []
    for data in ("affnist", "cifar10"):
        deaths = {
            n: most([of(f"cdr.{k}", n, data, "dynamic") for k in range(1, n + 1)]) for n in DEPTHS
        }
        right = slopes({n: of("accuracy", n, data, "dynamic") for n in DEPTHS})
        twin = slopes({n: of("accuracy", n, data, "uniform") for n in DEPTHS})
        limited = each(claim, [Cell(slopes(deaths)), Cell(right, "less")])
        # That the twin falls as much leaves the statement open.
        parts += [limited, confirming(each(claim, [Cell(minus(twin, right))]))]
    return joined(*parts)


@judge("mitt2023-q-no-dedicated-entity")
@near_the_stop
def _none_dedicated(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Of every layer below the classes, on images that tell which parts they show. The thresholds
    are ours, so it holds only where it does by those that find most."""

    def found(name: str) -> StatementVerdict | None:
        cells = [
            Cell(
                evidence.values(f"{name}.{k}", NET, data="part-whole"),
                "less",
                claim.conditions["threshold"],
            )
            for k in range(1, LAYERS)
        ]
        return each(claim, cells, one_sided=False)

    by_ours, by_any = found("one_part"), found("one_part_at_most")
    if by_ours is None or by_ours.word != "holds":
        return by_ours
    if by_any is not None and by_any.word == "holds":
        return by_ours
    return left_open(by_ours, "it does not hold by other thresholds")


@judge("mitt2023-q-does-not-scale")
@near_the_stop
def _does_not_scale(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """By how much more the best capsule network trails the plain one where images are harder than
    digits. Each set has a best one of its own, which can only bring it nearer."""

    def gap(data: str) -> Values:
        plain = evidence.values("accuracy", "convnet_avg", data=data)
        grid = evidence.systems("accuracy", GRID, data=data, routing="dynamic")
        nets = [*grid.values(), *evidence.systems("accuracy", "capsnet", data=data).values()]
        if len(grid) < LEAST_OF_GRID or len(nets) == len(grid):
            return {}
        return minus(plain, max(nets, key=lambda values: fmean(values.values())))

    digits = gap("mnist")
    cells = [Cell(minus(gap(data), digits)) for data in ("cifar10", "cifar100")]
    return each(claim, cells, corrected=True)


@judge("mitt2023-q-dead-never-revives")
@near_the_stop
def _never_revives(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Of the dead capsules at the ends of all epochs but the last, the share of those that live at
    the end of a later one. Where none was dead nothing is decided."""
    dead, revived, seeds = 0.0, 0.0, 0
    by_layer = [
        tuple(evidence.curves(f"{name}/{layer}", NET, data="expanded-mnist") for name in OF_DEATHS)
        for layer in NAMES
    ]
    for seed in by_layer[0][0]:
        # Runs of earlier versions have no revivals, or not of all epochs.
        if not all(len(d.get(seed, ())) == len(r.get(seed, ())) > 0 for d, r in by_layer):
            continue
        seeds += 1
        dead += sum(sum(counts[seed][:-1]) for counts, _ in by_layer)
        revived += sum(sum(events[seed]) for _, events in by_layer)
    if not seeds:
        return None
    low, high = share_bounds(round(revived), round(dead))
    ours = Interval(revived / dead if dead else 0.0, low, high, seeds)
    word = word_of(ours, "less", REVIVED, claim.conditions["n_seeds_min"])
    return StatementVerdict(word, ours, "less", REVIVED)
