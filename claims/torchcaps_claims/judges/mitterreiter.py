"""Statements of [mitterreiter2023]: activity, deaths and dynamics of layers.

Layers of capsules are counted from the primary one, routings from the lowest, both from 1.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from torchcaps.study.intervals import Interval
from torchcaps_claims.intervals import share_bounds
from torchcaps_claims.judges.case import (
    NONE_DIED,
    Case,
    Verdict,
    confirming,
    fails,
    holds,
    joined,
    judge,
    judge_each,
    open_if,
    printed,
    without_lean,
)
from torchcaps_claims.judges.evidence import known_fields
from torchcaps_claims.judges.values import Cell, Values, mean_of, most, seed_by_seed, slopes
from torchcaps_claims.narrow import widths_alive
from torchcaps_claims.ranks import rank_test, spearman
from torchcaps_claims.verdict import StatementVerdict, word_of
from torchcaps_claims.viewpoint import STRENGTHS

NET, GRID = "mitterreiter_5x16", "mitterreiter_grid"
AFFNIST = ("affnist", "affnist-style")
CLASSES, LAYERS, DEPTHS = 10, 5, range(2, 9)
# Layers below the classes.
BELOW = range(1, LAYERS)
NONE_DEAD = "no capsule was dead at the end of an epoch, so none could come back"
# Routings between the first and the last.
INNER = (2, 3)
# As many networks of the grid as its plan has.
LEAST_OF_GRID = 6
LEAST_ARCHITECTURES = 12
# Layers of capsules by name, as rows of epochs have them.
NAMES = ("primary", *(f"hidden_{k}" for k in range(2, LAYERS)), "classes")
OF_DEATHS = ("dead_capsules", "revivals")
LARGEST_ACTIVE = 0.2
REVIVED = 0.01  # as many dead capsules may come back
BY_CHANCE = 0.05
STATED = ("rotation 20°", "shear 10°", "scale 0.8", "translation 4 px")


def _moved(case: Case, name: str, model: str = NET, **chosen: Any) -> Values:
    """A statistic of a network that was trained on moved digits and looked at on affNIST."""
    named = "|".join(f"{name}@{images}/test" for images in AFFNIST)
    return case.values(named, model, data="expanded-mnist", **chosen)


def _on(case: Case, data: str, name: str, model: str = NET, **chosen: Any) -> Values:
    """Take a statistic of a network on its own set, or, of one on affNIST, as `_moved` does."""
    if data == "affnist":
        return _moved(case, name, model, **chosen)
    return case.values(name, model, data=data, **chosen)


judge_each(
    {
        "mitt2023-q-cas-declines": lambda case: [
            _moved(case, f"cas.{k}") - _moved(case, f"cas.{k + 1}") for k in BELOW[:-1]
        ],
        "mitt2023-q-cns-declines": lambda case: [
            _moved(case, f"cns.{k}") - _moved(case, f"cns.{k + 1}") for k in BELOW
        ],
        # By how much more the best capsule network trails the plain one where images are harder
        # than digits.
        "mitt2023-q-does-not-scale": lambda case: [
            _behind(case, data) - _behind(case, "mnist") for data in ("cifar10", "cifar100")
        ],
    }
)


def _behind(case: Case, data: str) -> Values:
    """Say by how much the best capsule network trails the plain one. Each set has a best one of its
    own, which can only bring it nearer."""
    plain = case.values("accuracy", "convnet_avg", data=data)
    grid = case.systems("accuracy", GRID, data=data, routing="dynamic")
    nets = [*grid.values(), *case.systems("accuracy", "capsnet", data=data).values()]
    if len(grid) < LEAST_OF_GRID or len(nets) == len(grid):
        return Values()
    best = max(nets, key=lambda values: values.mean)
    return plain - best


@judge("mitt2023-q-cifar10-worse-dynamics")
def _worse_in_colour(case: Case) -> Verdict:
    """Dyr goes with the lengths of primary capsules, which grow in training: networks that end
    while couplings still come to vary more do not say how dynamic their routing gets."""
    colour, digits = (
        mean_of(_on(case, data, f"dyr.{k}") for k in BELOW) for data in ("cifar10", "affnist")
    )
    found = case.each(Cell(colour, "less", against=digits))
    curves = case.curves("coupling_std/hidden_2", NET, data="cifar10").values()
    because = "on CIFAR-10 couplings still come to vary more when training ends"
    return without_lean(found, because) if any(x[-1] == max(x) for x in curves) else found


@judge("mitt2023-q-uniform-routing-better")
def _better_even(case: Case) -> Verdict:
    """At equal epochs. Open of the reduced form: it begins at first weights from which classes of
    the routed network are three times as long as those of its twin, and ends long before the two
    are as right as they get."""
    cells = [
        _on(case, data, "accuracy", routing="uniform", stop_at=None)
        - _on(case, data, "accuracy", stop_at=None)
        for data in ("affnist", "cifar10")
    ]
    found = case.each(*cells)
    because = "five epochs from first weights that slow the routed network say which learns sooner"
    return without_lean(found, because) if case.is_reduced else found


@judge("mitt2023-q-routing-almost-static")
def _almost_static(case: Case) -> Verdict:
    """By dyr, below what the paper prints, and by dys, which its row names and which counts living
    targets too. Where the two disagree it leans nowhere."""
    limits = {k: printed(f"mitt2023-t1-layer{k}-dyr") for k in INNER}
    rates = case.all_of(*(_moved(case, f"dyr.{k}").less(limits[k]) for k in INNER))
    sums = [case.bound(_moved(case, f"dys.{k}").less(case.threshold)) for k in INNER]
    is_split = holds(rates) and any(map(fails, sums))
    return without_lean(rates, "dys is not low, though dyr is") if is_split else rates


@judge("mitt2023-q-last-layer-more-dynamic")
def _last_more_dynamic(case: Case) -> Verdict:
    """By dyr: dys is dyr times the targets that live, and there are ten classes beside the sixteen
    capsules of a layer."""
    return case.each(_moved(case, "dyr.4") - most(_moved(case, f"dyr.{k}") for k in INNER))


@judge("mitt2023-q-all-affnist-models-similar")
def _all_similar(case: Case) -> Verdict:
    """Every routing strictly between the first and the last, of at least twelve architectures."""

    def of(images: str) -> list[dict[str, Values]]:
        names = [f"dyr.{k}@{images}/test" for k in DEPTHS]
        return [case.systems(name, GRID, routing="dynamic") for name in names]

    # Those of the second routing, of the third, and so on.
    found = next((rows for rows in map(of, AFFNIST) if rows[0]), of(AFFNIST[0]))
    cells = [
        values.less(case.threshold)
        # A routing with one above it is not the last.
        for below, above in pairwise(found)
        for system, values in below.items()
        if system in above
    ]
    if len(found[1]) < LEAST_ARCHITECTURES:
        return None
    return case.bound(*cells, corrected=True)


@judge("mitt2023-q-primecaps-always-active")
def _primary_always_active(case: Case) -> Verdict:
    """At 0.1, and at 0.2, the largest of the row: the larger it is, the fewer are active. Where a
    seed has no rate at 0.2, its mean length m tells the least that it may be: lengths are one at
    most, so no more than (1 − m) / (1 − 0.2) of them lie below it."""
    means = _moved(case, "cnm.1").items()
    least = {seed: 1 - (1 - mean) / (1 - LARGEST_ACTIVE) for seed, mean in means}
    usual = case.bound(_moved(case, "car.1").greater(case.threshold))
    rates = Values({**least, **_moved(case, "car_twice.1")})
    because = "its row asks for thresholds up to 0.2, where it is not certain"
    is_certain = holds(case.bound(rates.greater(case.threshold)))
    return open_if(not is_certain, usual, because, word="holds")


@judge("mitt2023-q-dead-increase-with-depth")
def _dead_increase(case: Case) -> Verdict:
    """More deaths in the fourth layer than in the first, and no layer with fewer than the one
    below it: such a step lets the statement fail and need not be shown."""
    cdr = {k: _moved(case, f"cdr.{k}") for k in BELOW}
    steps = (case.each(cdr[k + 1] - cdr[k]) for k in BELOW[:-1])
    more = case.if_any_died(case.each(cdr[4] - cdr[1]))
    return next((step for step in steps if fails(step)), more)


@judge("mitt2023-q-output-layer-no-dead")
def _no_dead_class(case: Case) -> Verdict:
    """Exactly none in every seed; fails where more than half of the seeds have one. Where none died
    in the layers below it, that none did among the classes says nothing of them."""
    dead = _moved(case, f"cds.{LAYERS}")
    if not dead:
        return None
    is_in_most = sum(value >= 1 for value in dead.values()) > len(dead) / 2
    is_none = not any(dead.values())
    found = case.decided(dead.interval, "within", 0.0, holds=is_none, fails=is_in_most)
    died_below = any(any(_moved(case, f"cds.{k}").values()) for k in BELOW)
    return found if died_below or fails(found) else without_lean(found, NONE_DIED)


@judge("mitt2023-q-active-less-than-classes")
def _fewer_than_classes(case: Case) -> Verdict:
    """Whether its premise is true, of which nothing follows for the sentence."""
    because = "a sentence with if: whether as few are active says nothing of what follows from it"
    return without_lean(case.bound(_moved(case, "cas.4").less(CLASSES)), because)


@judge("mitt2023-q-rba-causes-deaths")
def _routing_causes_deaths(case: Case) -> Verdict:
    uniform = {k: _moved(case, f"cdr.{k}", routing="uniform") for k in BELOW[1:]}
    excess = case.if_any_died(case.each(_moved(case, "cdr.4") - uniform[4]))
    return joined(excess, case.bound(*(rate.less(0.05) for rate in uniform.values())))


@judge("mitt2023-q-mhsa-no-vanishing")
def _attention_lives(case: Case) -> Verdict:
    """Fewer deaths, layers below the classes together, than by routing; which weights go on
    learning is shown without training, in tests/theory/test_own_weights.py."""
    routed, attended = (
        mean_of(_moved(case, f"cdr.{k}", model) for k in BELOW) for model in (NET, "mhsa_stack")
    )
    return case.if_any_died(case.each(routed - attended))


@judge("mitt2023-q-correlation-decreases")
def _correlation_decreases(case: Case) -> Verdict:
    """By Pearson, of every kind of change and every layer below the classes. It holds only where
    digits were also turned upside down, where some look like themselves again."""
    kinds = ("rotation", "translation", "scale", "shear")
    cells = [_with_strength(case, kind, k).less(case.threshold) for kind in kinds for k in BELOW]
    is_turned = bool(_moved(case, "pearson.rotation 180°.1"))
    found = case.bound(*cells, corrected=True)
    return open_if(not is_turned, found, "no digits were turned upside down", word="holds")


def _with_strength(case: Case, kind: str, layer: int) -> Values:
    """Spearman's correlation of the strength of a change with the correlation that is left."""
    left = {x: _moved(case, f"pearson.{x.name}.{layer}") for x in STRENGTHS if x.kind == kind}
    amounts = [each.amount for each in left if left[each]]
    known = [values for values in left.values() if values]
    return seed_by_seed(lambda values: spearman(amounts, values), known)


@judge("mitt2023-q-primecaps-not-invariant")
def _primary_not_invariant(case: Case) -> Verdict:
    """One of the changes is enough; all of them are needed to contradict it. By Pearson: the cosine
    of lengths near one, by which the paper argues, is near one whatever they do. Where the two
    disagree it leans nowhere."""

    def by(name: str) -> Verdict:
        return case.one_of(*(_moved(case, f"{name}.{x}.1").less(case.threshold) for x in STATED))

    found, cosine = by("pearson"), by("corr")
    is_split = holds(found) and not holds(cosine)
    because = "by the paper's cosine, of lengths that are all near one, they are"
    return without_lean(found, because) if is_split and cosine is not None else found


@judge("mitt2023-q-parse-trees-not-dynamic")
def _not_dynamic(case: Case) -> Verdict:
    """By dyr, from which the paper argues, and by the distance between trees of two classes. Where
    the two disagree it leans nowhere; one frozen routing of two leaves it open."""
    rates = case.all_of(*(_moved(case, f"dyr.{k}").less(case.threshold["dyr"]) for k in INNER))
    distance = case.bound(_moved(case, "distance.different").less(case.threshold["D"]))
    is_split = holds(rates) and fails(distance)
    because = "trees of two classes lie apart, though by dyr routing is static"
    return without_lean(distance, because) if is_split else joined(rates, distance)


@judge("mitt2023-q-different-tree-similar-image")
def _different_tree(case: Case) -> Verdict:
    """That it seldom happens does not contradict that it can."""
    found = case.bound(_moved(case, "share_as_far").greater(case.threshold))
    because = "the paper says that it can happen, and that it is rare contradicts nothing"
    return without_lean(found, because) if fails(found) else found


@judge("mitt2023-q-depth-limited-by-deaths")
def _depth_limited(case: Case) -> Verdict:
    def of(data: str, name: str, n: int, routing: str) -> Values:
        return _on(case, data, name, GRID, widths=",".join(["16"] * (n - 1)), routing=routing)

    parts = []
    for data in ("affnist", "cifar10"):
        deaths = {
            n: most(of(data, f"cdr.{k}", n, "dynamic") for k in range(1, n + 1)) for n in DEPTHS
        }
        right, twin = (
            slopes({n: of(data, "accuracy", n, routing) for n in DEPTHS})
            for routing in ("dynamic", "uniform")
        )
        # That the twin falls as much leaves the statement open.
        parts += [case.each(slopes(deaths), right.less()), confirming(case.each(twin - right))]
    return joined(*parts)


@judge("mitt2023-q-no-dedicated-entity")
def _none_dedicated(case: Case) -> Verdict:
    """Judge every layer below the classes, on images that tell which parts they show. The
    thresholds are ours, so it holds only where it does by those that find most; and only where
    they find some in a network without routing."""

    def few(name: str, **chosen: Any) -> Verdict:
        shares = (_on(case, "part-whole", f"{name}.{k}", **chosen) for k in BELOW)
        return case.bound(*(share.less(case.threshold) for share in shares))

    by_ours, by_any = few("one_part"), few("one_part_at_most")
    if not fails(few("one_part_at_most", routing="uniform")):
        because = "without routing there are as few, so the measure may find none anywhere"
        return without_lean(by_ours, because)
    return open_if(not holds(by_any), by_ours, "it does not hold by other thresholds", word="holds")


@judge("mitt2023-q-dead-never-revives")
def _never_revives(case: Case) -> Verdict:
    """Take of the dead capsules at the ends of all epochs but the last the share that lives at the
    end of a later one. Where none was dead nothing is decided."""
    dead, revived, seeds = 0.0, 0.0, 0
    by_layer = [
        tuple(case.curves(f"{name}/{layer}", NET, data="expanded-mnist") for name in OF_DEATHS)
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
    if not dead:
        none = StatementVerdict("undecided", Interval(0.0, None, None, seeds), "less", REVIVED)
        return none.left_open(NONE_DEAD)
    ours = Interval(revived / dead, *share_bounds(round(revived), round(dead)), seeds)
    return StatementVerdict(word_of(ours, "less", REVIVED, case.least), ours, "less", REVIVED)


class _Twins(NamedTuple):
    """How an architecture compares routed, without routing, and as narrow as the routed one lives:
    how many more of the routed one's capsules are dead, as a share of those below the classes; what
    is gained without routing; and what the narrow one keeps of that."""

    excess: Values
    gain: Values
    kept: Values


def _twins(case: Case, data: str) -> Iterator[_Twins]:
    """Compare the twins of each architecture on a set."""
    trained_on = "expanded-mnist" if data == "affnist" else data
    alive: dict[tuple[str, int], dict[int, str]] = {}
    # Of several records of a network the fullest comes last, and counts.
    for known, record in ((known_fields(record), record) for record in case.records):
        if [known.get(x) for x in ("model", "data", "routing")] == [GRID, trained_on, "dynamic"]:
            alive[known["widths"], known["d_pose"]] = widths_alive(record)
    for (widths, d_pose), narrow in alive.items():

        def of(name: str, routing: str, widths: str = widths, d_pose: int = d_pose) -> Values:
            chosen = {"widths": widths, "d_pose": d_pose, "routing": routing, "stop_at": None}
            return _on(case, data, name, GRID, **chosen)

        def dead(routing: str, layers: int = widths.count(",") + 1) -> Values:
            return mean_of(of(f"cdr.{k}", routing) for k in range(1, layers + 1))

        right = of("accuracy", "dynamic")
        by_widths = {each: of("accuracy", "uniform", each) for each in narrow.values()}
        kept = Values({s: by_widths[w][s] for s, w in narrow.items() if s in by_widths[w]})
        yield _Twins(
            dead("dynamic") - dead("uniform"), of("accuracy", "uniform") - right, kept - right
        )


@judge("mitt2023-q-deaths-explain-uniform-gain")
def _deaths_explain(case: Case) -> Verdict:
    """On affNIST and on CIFAR-10 each: over architectures the gain goes with the deaths, and
    without the dead capsules less than half of it is left."""
    parts: list[Verdict] = []
    for data in ("affnist", "cifar10"):
        twins = [each for each in _twins(case, data) if each.excess and each.gain]
        is_enough = len(twins) >= LEAST_ARCHITECTURES
        parts += [_goes_with(case, twins), _is_lost(case, twins)] if is_enough else [None]
    return joined(*parts)


def _goes_with(case: Case, twins: Sequence[_Twins]) -> StatementVerdict:
    """Holds by permutations of architectures, and fails by the interval of the correlation."""
    excess, gain = (tuple(getattr(x, name).mean for x in twins) for name in ("excess", "gain"))
    ours, chance = rank_test(excess, gain)
    threshold: float = case.threshold["spearman"]
    seeds = min(min(len(each.excess), len(each.gain)) for each in twins)
    holds = chance < BY_CHANCE
    fails = not holds and ours.high is not None and ours.high < threshold
    ours = ours._replace(n=seeds)
    return case.decided(ours, "greater", threshold, holds=holds, fails=fails)


def _is_lost(case: Case, twins: Sequence[_Twins]) -> Verdict:
    """What is kept less that share of the gain, in points, mean over architectures, seed by seed.
    Open where nothing is gained of which a share could be kept."""
    gain, kept = mean_of(x.gain for x in twins), mean_of(x.kept for x in twins)
    rest = kept - case.threshold["gain_kept_below"] * gain
    of_both = Values({seed: gain[seed] for seed in rest})
    is_gain = holds(case.bound(of_both))
    because = "networks without routing are not certainly the better ones"
    found = case.bound(rest.less())
    return found if is_gain else without_lean(found, because)
