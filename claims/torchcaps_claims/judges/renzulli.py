"""Statements of [renzulli2025]: couplings, their entropy and keys, sparsity and accuracy, with and
without pruning.

Couplings are on a grid (Q); a pruned network has its couplings on the same grid (REM).
"""

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from torchcaps_claims.claim import Claim, find_claim
from torchcaps_claims.comparable import POINTS
from torchcaps_claims.judges.evidence import Evidence, Values
from torchcaps_claims.judges.rules import (
    Cell,
    confirming,
    each,
    joined,
    left_open,
    minus,
    most,
    one_of,
    times,
)
from torchcaps_claims.judges.table import judge
from torchcaps_claims.pruned import MATCHED
from torchcaps_claims.verdict import StatementVerdict

__all__ = [
    "AT_HAND",
    "DR",
    "PRUNED",
    "SAME_SPARSITY",
    "families_on",
    "on_grid",
]

DR, GAMMA, DEEP = "rem_dr", "rem_gamma", "rem_deepcaps"
EFFICIENT = {"mnist": "rem_eff_mnist", "fashion-mnist": "rem_eff_mnist", "cifar10": "rem_eff_cifar"}
AT_HAND = ("mnist", "fashion-mnist", "cifar10")
PRUNED: dict[str, Any] = {"prune": "lobster"}
CLASSES = 10
LOW, HIGH = (10, 20, 30), (80, 90)
# Points of sparsity within which two networks have as many weights masked.
SAME_SPARSITY = 2.0
# How often the network is right on CIFAR-10 whose couplings are said to collapse.
COLLAPSED = "rem-t1-cifar-10-eff-capsnet-vanilla-acc"
OTHER_SPARSITY = "a network ended at another sparsity than its row asks for"


def on_grid(evidence: Evidence, name: str, data: str, model: str = DR, **chosen: Any) -> Values:
    """A statistic with couplings on the grid of eleven levels, or that of its network."""
    grid = "+K11,6" if model == GAMMA else "+K11"
    types = {"types": 64} if (model, data) == (DR, "cifar10") else {}
    return evidence.values(f"{name}{grid}", model, data=data, **types, **chosen)


def families_on(data: str) -> tuple[str, ...]:
    return (DR, GAMMA, DEEP, EFFICIENT[data])


@judge("rem-q-entropy-lower-everywhere", with_itself=True)
def _entropy_lower(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """In every cell that was run: DR-CapsNet on the three sets at hand, and whatever there is of
    the others and of other sets, one that was pruned and whose entropy nobody measured too. One
    architecture can contradict "every architecture"; to confirm it takes all that are built for
    the sets at hand."""
    cells, families = [], set()
    for data in AT_HAND:
        for model in families_on(data):
            fall = minus(
                on_grid(evidence, "entropy", data, model),
                on_grid(evidence, "entropy", data, model, **PRUNED),
            )
            if fall or model == DR or evidence.values("accuracy", model, data=data, **PRUNED):
                cells.append(Cell(fall))
                families.add(model)
    found = each(claim, [*cells, *_elsewhere(evidence, "entropy+")], corrected=True)
    missing = {model for data in AT_HAND for model in families_on(data)} - families
    if found is None or found.word != "holds" or not missing:
        return found
    return left_open(found, f"nobody ran {', '.join(sorted(missing))}")


@judge("rem-q-keys-lower")
def _keys_lower(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    cells = [
        Cell(
            minus(
                on_grid(evidence, f"keys.{number}", data),
                on_grid(evidence, f"keys.{number}", data, **PRUNED),
            )
        )
        for data in AT_HAND
        for number in range(CLASSES)
    ]
    return each(claim, [*cells, *_elsewhere(evidence, "keys.")], corrected=True)


def _elsewhere(evidence: Evidence, beginning: str) -> list[Cell]:
    """By how much statistics of this beginning fall on sets that are not at hand, in whatever was
    run on them, pruned and not."""
    found = {}
    for record in evidence.records:
        model, data = record.recipe["model"], record.recipe["data"]
        if data in AT_HAND or record.recipe.get("prune") != PRUNED["prune"]:
            continue
        chosen = {"data": data, **record.recipe.get("options", {})}
        names = {name for seed in record.seeds for name in seed.values}
        for name in (name for name in names if name.startswith(beginning)):
            both = (evidence.values(name, model, **chosen, **each) for each in ({}, PRUNED))
            found[data, model, name] = minus(*both)
    return [Cell(found[each]) for each in sorted(found) if found[each]]


@judge("rem-q-eff-low-entropy")
def _efficient_lowest(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return _lowest(claim, evidence, AT_HAND, lambda data: EFFICIENT[data])


@judge("rem-q-selfattention-collapse")
def _self_attention_collapses(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """On CIFAR-10 couplings hardly vary, and their entropy is low; elsewhere both are larger, which
    cannot contradict it. Open of networks that are right less often than the paper's: couplings
    begin even, and what they come to is seen of trained ones."""
    found = {}
    for data in AT_HAND:
        model = EFFICIENT[data]
        found["std", data] = evidence.values("coupling_std.1", model, data=data)
        found["H", data] = on_grid(evidence, "entropy", data, model)
    threshold: Mapping[str, float] = claim.conditions["threshold"]
    low = [Cell(found[name, "cifar10"], "less", bound) for name, bound in threshold.items()]
    larger = [
        Cell(found[name, data], against=found[name, "cifar10"])
        for name in threshold
        for data in AT_HAND
        if data != "cifar10"
    ]
    verdict = joined(each(claim, low, one_sided=False), confirming(each(claim, larger)))
    right = evidence.values("accuracy", EFFICIENT["cifar10"], data="cifar10").values()
    printed = find_claim(COLLAPSED).value
    assert isinstance(printed, float)
    is_trained = bool(right) and fmean(right) >= printed - POINTS
    if verdict is None or is_trained:
        return verdict
    return left_open(verdict, "on CIFAR-10 these networks are right less often than the paper's")


@judge("rem-q-gamma-lowest")
def _gamma_lowest(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    return _lowest(claim, evidence, ("mnist",), lambda data: GAMMA)


def _lowest(
    claim: Claim, evidence: Evidence, sets: tuple[str, ...], model_of: Callable[[str], str]
) -> StatementVerdict | None:
    """Whether one family has a lower entropy than each of the others, on every set, with and
    without pruning."""
    cells = []
    for data in sets:
        for pruned in ({}, PRUNED):
            lowest = on_grid(evidence, "entropy", data, model_of(data), **pruned)
            cells += [
                Cell(on_grid(evidence, "entropy", data, other, **pruned), against=lowest)
                for other in families_on(data)
                if other != model_of(data)
            ]
    return each(claim, cells, corrected=True)


@judge("rem-q-low-pruning-noisy")
def _noisy_when_low(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Entropy rises at one of the low sparsities and falls at the high ones."""
    parts, is_reached = [], True
    for data in ("mnist", "cifar10"):
        dense = on_grid(evidence, "entropy", data)

        def rise(percent: int, data: str = data, dense: Values = dense) -> Values:
            chosen = {**PRUNED, "prune_to": percent / 100}
            return minus(on_grid(evidence, "entropy", data, **chosen), dense)

        parts.append(one_of(claim, [Cell(rise(percent)) for percent in LOW], corrected=True))
        parts.append(each(claim, [Cell(rise(percent), "less") for percent in HIGH]))
        reached = [_reaches(evidence, data, percent, **PRUNED) for percent in (*LOW, *HIGH)]
        is_reached = is_reached and all(reached)
    found = joined(*parts)
    return found if found is None or is_reached else left_open(found, OTHER_SPARSITY)


@judge("rem-q-undertrained-high-entropy")
def _undertrained_higher(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    under = _robust(evidence, "entropy", stops=True, **PRUNED)
    well = _robust(evidence, "entropy", **PRUNED)
    robust = minus(
        _robust(evidence, "accuracy", **PRUNED), _robust(evidence, "accuracy", stops=True, **PRUNED)
    )
    higher = each(claim, [Cell(minus(under, well))])
    if higher is not None and evidence.is_reduced:
        return left_open(higher, "the smaller form trains the network that stops for longer")
    if higher is None or higher.word != "holds":
        return higher
    # As robust or more: by its mean, and no test.
    if not robust:
        return None
    if sum(robust.values()) >= 0:
        return higher
    return left_open(higher, "networks that were trained to the end are less robust")


@judge("rem-q-rem-affine-robust")
def _pruned_more_robust(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    both = (
        [_robust(evidence, "accuracy", stops=stops, **chosen) for chosen in (PRUNED, {})]
        for stops in (True, False)
    )
    return each(claim, [Cell(minus(*values)) for values in both], corrected=True)


def _robust(evidence: Evidence, name: str, *, stops: bool = False, **chosen: Any) -> Values:
    """On affNIST: of networks that stop at 99.22 %, or of those that train to the end."""
    named = "|".join(f"{name}+K11@{images}/test" for images in ("affnist", "affnist-style"))
    stop_at = 0.9922 if stops else None
    return evidence.values(named, DR, data="expanded-mnist", stop_at=stop_at, **chosen)


@judge("rem-q-entropy-starts-low")
def _starts_low(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Of validation images, on which every epoch of a pruned run counts its keys. Runs that end
    while entropy still rises cannot say that it does not fall."""
    curves = evidence.curves("entropy", DR, data="mnist", **PRUNED)
    threshold = claim.conditions["threshold"]
    cells = [
        Cell(
            {seed: max(curve) - curve[end] for seed, curve in curves.items()}, "greater", threshold
        )
        for end in (0, -1)
    ]
    found = each(claim, cells, one_sided=False)
    rises = any(curve[-1] == max(curve) for curve in curves.values())
    if found is None or found.word != "fails" or not rises:
        return found
    return left_open(found, "entropy still rises at the end of these runs")


@judge("rem-q-epoch1-uniform")
def _even_at_first(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    share = evidence.values("even_couplings", DR, data="mnist", epochs=1)
    return each(claim, [Cell(share, "greater", claim.conditions["threshold"])], one_sided=False)


@judge("rem-q-k-affects-performance")
def _levels_matter(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """On MNIST, from the coarsest grid of three levels to the finest of 129."""

    def of(name: str, levels: int) -> Values:
        return evidence.values(f"{name}+K{levels}", DR, data="mnist")

    entropy = minus(of("entropy", 129), of("entropy", 3))
    levels = (2, 3, 4, 6, 11, 21, 41, 129)
    lowest = times(-1, most(times(-1, of("accuracy", each)) for each in levels))
    accuracy = minus(of("accuracy", 129), lowest)
    found = each(claim, [Cell(entropy), Cell(accuracy)])
    same = [
        each(claim, [Cell(entropy, "within", 0.2)]),
        each(claim, [Cell(accuracy, "within", 0.05)]),
    ]
    if all(part is not None and part.word == "holds" for part in same) and same[0] is not None:
        return StatementVerdict("fails", same[0].ours, "greater", 0.0)
    return confirming(found)


@judge("rem-q-snip-worse")
def _snip_worse(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """At a sparsity of 80 %; open where one of the networks ended at another."""
    to = {"prune_to": 0.8}
    lobster: dict[str, Any] = {**PRUNED, **to}
    snip: dict[str, Any] = {"prune": "snip", **to}
    cells = [
        minus(
            on_grid(evidence, "accuracy", data, **lobster),
            on_grid(evidence, "accuracy", data, **snip),
        )
        for data in ("mnist", "cifar10")
    ]
    of_snip = {data: on_grid(evidence, "entropy", data, **snip) for data in ("mnist", "cifar10")}
    cells.append(minus(on_grid(evidence, "entropy", "mnist"), of_snip["mnist"]))
    cells.append(minus(of_snip["cifar10"], on_grid(evidence, "entropy", "cifar10", **lobster)))
    found = each(claim, [Cell(values) for values in cells], corrected=True)
    reached = [
        _reaches(evidence, data, 80, prune=way)
        for data in ("mnist", "cifar10")
        for way in ("lobster", "snip")
    ]
    return found if found is None or all(reached) else left_open(found, OTHER_SPARSITY)


@judge("rem-q-decoder-limits")
def _decoder_limits(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    cells = []
    for data in AT_HAND:
        types = {"types": 64} if data == "cifar10" else {}

        def sparsity(drawn: bool, data: str = data, types: Mapping[str, int] = types) -> Values:
            return evidence.values("sparsity", DR, data=data, decoder=drawn, **types, **PRUNED)

        def fall(drawn: bool, data: str = data) -> Values:
            dense = on_grid(evidence, "entropy", data, decoder=drawn)
            pruned = on_grid(evidence, "entropy", data, decoder=drawn, **PRUNED)
            falls = minus(dense, pruned)
            return {seed: value / dense[seed] for seed, value in falls.items() if dense[seed]}

        cells.append(Cell(minus(sparsity(False), sparsity(True))))
        cells.append(Cell(minus(fall(False), fall(True))))
    return each(claim, cells, corrected=True)


@judge("rem-q-entropy-falls-by-pruning")
def _falls_by_pruning(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Against the dense network of the last epoch, and against networks that have as many weights
    masked: at random, and at the end. Open where LOBSTER ended at another sparsity than theirs."""
    cells, is_matched = [], True
    for data in AT_HAND:
        pruned = on_grid(evidence, "entropy", data, **PRUNED)
        sparsity = _sparsity(evidence, data, **PRUNED)
        cells.append(Cell(minus(on_grid(evidence, "entropy", data, keep="last"), pruned)))
        for control in ("random_masks", "mask_at_the_end"):
            masked: dict[str, Any] = {"prune": control, "prune_to": MATCHED[data] / 100}
            cells.append(Cell(minus(on_grid(evidence, "entropy", data, **masked), pruned)))
            apart = minus(_sparsity(evidence, data, **masked), sparsity)
            is_matched = is_matched and _is_near(apart, 0)
    found = each(claim, cells, corrected=True)
    return found if found is None or is_matched else left_open(found, OTHER_SPARSITY)


def _sparsity(evidence: Evidence, data: str, **chosen: Any) -> Values:
    types = {"types": 64} if data == "cifar10" else {}
    return evidence.values("sparsity", DR, data=data, **types, **chosen)


def _reaches(evidence: Evidence, data: str, percent: int, **chosen: Any) -> bool:
    """Whether as many weights are pruned as were asked for. LOBSTER goes no further than that, and
    often ends before."""
    return _is_near(_sparsity(evidence, data, prune_to=percent / 100, **chosen), percent)


def _is_near(sparsity: Values, percent: int) -> bool:
    """Whether the mean is within two points; what nobody measured is not."""
    return bool(sparsity) and abs(fmean(sparsity.values()) - percent) <= SAME_SPARSITY


@judge("rem-q-any-pruning")
def _any_pruning(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """At a sparsity of 80 %; open where a network ended at another."""
    cells, is_reached = [], True
    for data in ("mnist", "cifar10"):
        dense = on_grid(evidence, "entropy", data)
        for way in ("lobster", "magnitude", "snip", "random_masks"):
            pruned = on_grid(evidence, "entropy", data, prune=way, prune_to=0.8)
            cells.append(Cell(minus(dense, pruned)))
            is_reached = is_reached and _reaches(evidence, data, 80, prune=way)
    found = each(claim, cells, corrected=True)
    return found if found is None or is_reached else left_open(found, OTHER_SPARSITY)
