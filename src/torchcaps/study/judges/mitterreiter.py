"""Statements of [mitterreiter2023]: activity, deaths and dynamics of layers.

Layers of capsules are counted from the primary one, routings from the lowest, both from 1.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

from torchcaps.study.claim import Claim
from torchcaps.study.intervals import Interval, share_bounds
from torchcaps.study.judges.evidence import Evidence, Values, known_fields
from torchcaps.study.judges.rules import (
    Cell,
    all_of,
    confirming,
    each,
    joined,
    left_open,
    minus,
    most,
    one_of,
    slopes,
    times,
)
from torchcaps.study.narrow import widths_alive
from torchcaps.study.ranks import rank_test
from torchcaps.study.verdict import StatementVerdict, StatementWord, word_of

__all__ = ["JUDGES"]

NET, GRID = "mitterreiter_5x16", "mitterreiter_grid"
AFFNIST = ("affnist", "affnist-style")
CLASSES, LAYERS, DEPTHS = 10, 5, range(2, 9)
LEAST_ARCHITECTURES = 12
BY_CHANCE = 0.05
# Layers of capsules by name, as rows of epochs have them.
NAMES = ("primary", *(f"hidden_{k}" for k in range(2, LAYERS)), "classes")
OF_DEATHS = ("dead_capsules", "revivals")
# Such a share of dead capsules may come back.
REVIVED = 0.01
STATED = ("rotation 20°", "shear 10°", "scale 0.8", "translation 4 px")


def _of(evidence: Evidence, name: str, model: str = NET, **chosen: Any) -> Values:
    """A statistic of a network that was trained on moved digits and looked at on affNIST."""
    named = "|".join(f"{name}@{images}/test" for images in AFFNIST)
    return evidence.values(named, model, data="expanded-mnist", **chosen)


def _almost_static(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    cells = [Cell(_of(evidence, f"dys.{k}"), "less", claim.conditions["threshold"]) for k in (2, 3)]
    return each(claim, cells, one_sided=False)


def _last_more_dynamic(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return each(
        claim,
        [
            Cell(
                minus(
                    _of(evidence, f"{name}.4"),
                    most([_of(evidence, f"{name}.2"), _of(evidence, f"{name}.3")]),
                )
            )
            for name in ("dyr", "dys")
        ],
    )


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


def _worse_on_cifar(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    def mean(of: Callable[[int], Values]) -> Values:
        layers = [of(k) for k in range(1, LAYERS)]
        common = set.intersection(*map(set, layers))
        return {seed: sum(each[seed] for each in layers) / len(layers) for seed in common}

    colour = mean(lambda k: evidence.values(f"dyr.{k}", NET, data="cifar10"))
    digits = mean(lambda k: _of(evidence, f"dyr.{k}"))
    return each(claim, [Cell(colour, "less", against=digits)])


def _primary_always_active(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Records have the usual threshold of activity alone, and the row sweeps it, so that they can
    contradict the statement and not confirm it."""
    cell = Cell(_of(evidence, "car.1"), "greater", claim.conditions["threshold"])
    found = each(claim, [cell], one_sided=False)
    if found is None or found.word == "fails":
        return found
    return left_open(found, "its row sweeps the threshold of activity, and records have one")


def _cas_declines(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return _declines(claim, evidence, "cas", range(1, LAYERS - 1))


def _cns_declines(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return _declines(claim, evidence, "cns", range(1, LAYERS))


def _declines(
    claim: Claim, evidence: Evidence, name: str, layers: range
) -> StatementVerdict | None:
    cells = [
        Cell(minus(_of(evidence, f"{name}.{k}"), _of(evidence, f"{name}.{k + 1}"))) for k in layers
    ]
    return each(claim, cells, corrected=True)


def _dead_increase(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """More deaths in the fourth layer than in the first, and no layer with fewer than the one
    below it: such a step lets the statement fail and need not be shown."""
    cdr = {k: _of(evidence, f"cdr.{k}") for k in range(1, LAYERS)}
    whole = each(claim, [Cell(minus(cdr[4], cdr[1]))])
    steps = [each(claim, [Cell(minus(cdr[k + 1], cdr[k]))]) for k in range(1, 4)]
    falling = [step for step in steps if step is not None and step.word == "fails"]
    return falling[0] if falling else whole


def _no_dead_class(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Exactly none in every seed; fails where more than half of the seeds have one."""
    dead = _of(evidence, f"cds.{LAYERS}")
    if not dead:
        return None
    ours = Cell(dead).interval()
    enough = len(dead) >= claim.conditions["n_seeds_min"]
    if enough and sum(value >= 1 for value in dead.values()) > len(dead) / 2:
        return StatementVerdict("fails", ours, "within", 0.0)
    holds = enough and not any(dead.values())
    return StatementVerdict("holds" if holds else "undecided", ours, "within", 0.0)


def _fewer_than_classes(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """The sentence says what follows where fewer are active: where as many are as there are
    classes, or more, it is neither shown nor contradicted."""
    found = each(claim, [Cell(_of(evidence, "cas.4"), "less", CLASSES)], one_sided=False)
    if found is None or found.word != "fails":
        return found
    return left_open(found, "no fewer capsules are active than there are classes")


def _uniform_better(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """On affNIST and on CIFAR-10, at equal epochs."""
    digits = minus(
        _of(evidence, "accuracy", routing="uniform", stop_at=None),
        _of(evidence, "accuracy", stop_at=None),
    )
    colour = minus(
        evidence.values("accuracy", NET, data="cifar10", routing="uniform", stop_at=None),
        evidence.values("accuracy", NET, data="cifar10", stop_at=None),
    )
    return each(claim, [Cell(digits), Cell(colour)], corrected=True)


def _routing_causes_deaths(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    uniform = {k: _of(evidence, f"cdr.{k}", routing="uniform") for k in range(2, LAYERS)}
    excess = each(claim, [Cell(minus(_of(evidence, "cdr.4"), uniform[4]))])
    none_dead = each(
        claim, [Cell(rate, "less", 0.05) for rate in uniform.values()], one_sided=False
    )
    return joined(excess, none_dead)


def _correlation_decreases(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Every kind of change and every layer below the classes. It holds only where digits were also
    turned upside down, where some look like themselves again."""
    cells = [
        Cell(_of(evidence, f"spearman.{kind}.{k}"), "less", claim.conditions["threshold"])
        for kind in ("rotation", "translation", "scale", "shear")
        for k in range(1, LAYERS)
    ]
    found = each(claim, cells, one_sided=False, corrected=True)
    is_turned = bool(_of(evidence, "corr.rotation 180°.1"))
    if found is None or found.word != "holds" or is_turned:
        return found
    return left_open(found, "no digits were turned upside down")


def _primary_not_invariant(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """One of the changes is enough; all of them are needed to contradict it."""
    limit = claim.conditions["threshold"]
    return one_of(claim, [Cell(_of(evidence, f"corr.{each}.1"), "less", limit) for each in STATED])


def _not_dynamic(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """By dyr, from which the paper argues, and by a distance of ours, which does not contradict it
    alone."""
    limits = claim.conditions["threshold"]
    cell = Cell(_of(evidence, "distance.different"), "less", limits["D"])
    distance = each(claim, [cell], one_sided=False)
    # One frozen routing of two leaves the statement open.
    rates = all_of(claim, [Cell(_of(evidence, f"dyr.{k}"), "less", limits["dyr"]) for k in (2, 3)])
    words = [None if part is None else part.word for part in (distance, rates)]
    if distance is not None and words == ["fails", "holds"]:
        return left_open(distance, "by dyr, the measure of the paper, it holds")
    return joined(distance, rates)


def _different_tree(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """The paper says that it can happen; that it happens seldom does not contradict it."""
    cell = Cell(_of(evidence, "share_as_far"), "greater", claim.conditions["threshold"])
    found = each(claim, [cell], one_sided=False)
    if found is None or found.word != "fails":
        return found
    return left_open(
        found, "it happens more seldom than its row asks for, and the paper says that it can"
    )


def _depth_limited(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    def of(name: str, n: int, data: str, routing: str) -> Values:
        chosen = {"widths": ",".join(["16"] * (n - 1)), "routing": routing}
        if data == "affnist":
            return _of(evidence, name, GRID, **chosen)
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


class _Twins(NamedTuple):
    """Of an architecture, routed, without routing, and as narrow as the routed one lives: how many
    more of the routed one's capsules are dead, as a share of those below the classes; what is
    gained without routing; and what the narrow one keeps of that."""

    excess: Values
    gain: Values
    kept: Values


def _twins(evidence: Evidence, data: str) -> Iterator[_Twins]:
    """Those of each architecture on a set."""
    trained_on = "expanded-mnist" if data == "affnist" else data
    alive: dict[tuple[str, int], dict[int, str]] = {}
    # Of several records of a network the fullest comes last, and counts.
    for known, record in ((known_fields(record), record) for record in evidence.records):
        if [known.get(x) for x in ("model", "data", "routing")] == [GRID, trained_on, "dynamic"]:
            alive[known["widths"], known["d_pose"]] = widths_alive(record)
    for (widths, d_pose), narrow in alive.items():

        def of(name: str, routing: str, widths: str = widths, d_pose: int = d_pose) -> Values:
            chosen = {"widths": widths, "d_pose": d_pose, "routing": routing, "stop_at": None}
            if data == "affnist":
                return _of(evidence, name, GRID, **chosen)
            return evidence.values(name, GRID, data=data, **chosen)

        def dead(routing: str, layers: int = widths.count(",") + 1) -> Values:
            rates = [of(f"cdr.{k}", routing) for k in range(1, layers + 1)]
            common = set.intersection(*map(set, rates))
            return {seed: fmean(each[seed] for each in rates) for seed in common}

        right = of("accuracy", "dynamic")
        by_widths = {each: of("accuracy", "uniform", each) for each in narrow.values()}
        kept = {seed: by_widths[w][seed] for seed, w in narrow.items() if seed in by_widths[w]}
        yield _Twins(
            minus(dead("dynamic"), dead("uniform")),
            minus(of("accuracy", "uniform"), right),
            minus(kept, right),
        )


def _deaths_explain(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """On affNIST and on CIFAR-10 each: over architectures the gain goes with the deaths, and
    without the dead capsules less than half of it is left."""
    parts: list[StatementVerdict | None] = []
    for data in ("affnist", "cifar10"):
        twins = [each for each in _twins(evidence, data) if each.excess and each.gain]
        is_enough = len(twins) >= LEAST_ARCHITECTURES
        parts += [_goes_with(claim, twins), _is_lost(claim, twins)] if is_enough else [None]
    return joined(*parts)


def _goes_with(claim: Claim, twins: Sequence[_Twins]) -> StatementVerdict:
    """Holds by permutations of architectures, and fails by the interval of the correlation."""
    excess, gain = (
        tuple(fmean(getattr(each, name).values()) for each in twins) for name in ("excess", "gain")
    )
    ours, chance = rank_test(excess, gain)
    threshold: float = claim.conditions["threshold"]["spearman"]
    seeds = min(min(len(each.excess), len(each.gain)) for each in twins)
    word: StatementWord = "undecided"
    if seeds >= claim.conditions["n_seeds_min"]:
        is_below = ours.high is not None and ours.high < threshold
        word = "holds" if chance < BY_CHANCE else "fails" if is_below else "undecided"
    return StatementVerdict(word, ours._replace(n=seeds), "greater", threshold)


def _is_lost(claim: Claim, twins: Sequence[_Twins]) -> StatementVerdict | None:
    """What is kept less that share of the gain, in points, mean over architectures, seed by seed.
    Open where nothing is gained of which a share could be kept."""
    share: float = claim.conditions["threshold"]["gain_kept_below"]
    seeds = sorted(set.intersection(*({*each.gain} & {*each.kept} for each in twins)))
    gain = Cell({seed: fmean(each.gain[seed] for each in twins) for seed in seeds})
    kept = {seed: fmean(each.kept[seed] for each in twins) for seed in seeds}
    found = each(claim, [Cell(minus(kept, times(share, gain.values)), "less")], one_sided=False)
    least: int = claim.conditions["n_seeds_min"]
    if found is None or gain.word(least, one_sided=False, cells=1) == "holds":
        return found
    return left_open(found, "networks without routing are not certainly the better ones")


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


JUDGES: Mapping[str, Callable[[Claim, Evidence], StatementVerdict | None]] = {
    "mitt2023-q-routing-almost-static": _almost_static,
    "mitt2023-q-last-layer-more-dynamic": _last_more_dynamic,
    "mitt2023-q-all-affnist-models-similar": _all_similar,
    "mitt2023-q-cifar10-worse-dynamics": _worse_on_cifar,
    "mitt2023-q-primecaps-always-active": _primary_always_active,
    "mitt2023-q-cas-declines": _cas_declines,
    "mitt2023-q-cns-declines": _cns_declines,
    "mitt2023-q-dead-increase-with-depth": _dead_increase,
    "mitt2023-q-output-layer-no-dead": _no_dead_class,
    "mitt2023-q-active-less-than-classes": _fewer_than_classes,
    "mitt2023-q-uniform-routing-better": _uniform_better,
    "mitt2023-q-rba-causes-deaths": _routing_causes_deaths,
    "mitt2023-q-deaths-explain-uniform-gain": _deaths_explain,
    "mitt2023-q-depth-limited-by-deaths": _depth_limited,
    "mitt2023-q-correlation-decreases": _correlation_decreases,
    "mitt2023-q-no-dedicated-entity": _none_dedicated,
    "mitt2023-q-primecaps-not-invariant": _primary_not_invariant,
    "mitt2023-q-parse-trees-not-dynamic": _not_dynamic,
    "mitt2023-q-dead-never-revives": _never_revives,
    "mitt2023-q-different-tree-similar-image": _different_tree,
}
