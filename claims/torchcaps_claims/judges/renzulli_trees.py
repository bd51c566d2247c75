"""Statements of [renzulli2025] about what pruning and iterations do to votes and couplings."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from torchcaps_claims.claim import Claim
from torchcaps_claims.judges.evidence import Evidence, Values
from torchcaps_claims.judges.renzulli import (
    AT_HAND,
    DR,
    PRUNED,
    SAME_SPARSITY,
    families_on,
    on_grid,
)
from torchcaps_claims.judges.rules import (
    Cell,
    confirming,
    each,
    joined,
    left_open,
    minus,
    rises,
    times,
)
from torchcaps_claims.judges.table import judge
from torchcaps_claims.pruned import MATCHED
from torchcaps_claims.verdict import StatementVerdict

ITERATIONS = range(1, 11)
# A network of ten classes that is right on no more than so many percent has not learned them.
GUESSED = 20.0
# Of blocks: so few are zero that they are no reason of a lower entropy.
HARDLY_ANY = 0.01
# A Gini coefficient below this is of couplings that are even.
EVEN = 0.01


@judge("rem-q-pruning-zeroes-whole-votes", with_itself=True)
def _zeroes_whole_votes(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """More than a tenth of the blocks in every cell; contradicted by a cell that has hardly any and
    a lower entropy all the same, by its mean, and is as sparse as the paper's."""
    many, none_and_lower, and_sparse = [], [], []
    for data in AT_HAND:
        for model in families_on(data):
            blocks = _blocks(evidence, data, model)
            fall = minus(
                on_grid(evidence, "entropy", data, model),
                on_grid(evidence, "entropy", data, model, **PRUNED),
            )
            many.append(Cell(blocks, "greater", claim.conditions["threshold"]))
            cell = Cell(blocks if sum(fall.values()) > 0 else {}, "greater", HARDLY_ANY)
            none_and_lower.append(cell)
            is_sparse = _is_as_sparse(evidence, data, model)
            and_sparse.append(cell if is_sparse else Cell({}, "greater", HARDLY_ANY))
    refuted = each(claim, and_sparse, one_sided=False, corrected=True)
    if refuted is not None and refuted.word == "fails":
        return refuted
    # Hardly any in a network that is less sparse says little.
    less_sparse = each(claim, none_and_lower, one_sided=False, corrected=True)
    if less_sparse is not None and less_sparse.word == "fails":
        return left_open(less_sparse, "less is pruned than in the paper")
    # Too few blocks alone contradict nothing.
    is_whole = all(cell.is_there for cell in many)
    return confirming(each(claim, many, one_sided=False)) if is_whole else None


def _blocks(evidence: Evidence, data: str, model: str) -> Values:
    """As was looked at, or as every epoch of a pruned run counts them, which ends with the network
    of the last."""
    looked_at = on_grid(evidence, "zero_blocks", data, model, **PRUNED)
    if looked_at:
        return looked_at
    types = {"types": 64} if (model, data) == (DR, "cifar10") else {}
    counted = evidence.curves("zero_blocks/classes", model, data=data, **types, **PRUNED)
    return {seed: curve[-1] for seed, curve in counted.items()}


def _is_as_sparse(evidence: Evidence, data: str, model: str) -> bool:
    """Whether as much is pruned as [renzulli2025] has of DR-CapsNet, or more."""
    types = {"types": 64} if (model, data) == (DR, "cifar10") else {}
    sparsity = evidence.values("sparsity", model, data=data, **types, **PRUNED)
    return bool(sparsity) and fmean(sparsity.values()) >= MATCHED[data] - SAME_SPARSITY


@judge("rem-q-sparser-couplings")
def _sparser_couplings(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Open where all couplings are even before pruning: none can become less sparse then."""

    def of(name: str, **chosen: Any) -> Values:
        return evidence.values(name, DR, data="mnist", **chosen)

    cells = [Cell(minus(of(name, **PRUNED), of(name))) for name in ("small_couplings", "gini")]
    found = each(claim, cells, corrected=True)
    before = of("gini").values()
    is_even = bool(before) and fmean(before) < EVEN
    if found is None or found.word != "fails" or not is_even:
        return found
    return left_open(found, "all couplings are even before pruning")


@judge("rem-q-iterations-polarise")
def _iterations_polarise(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """After each iteration of networks that were trained with ten, and at the end of networks that
    were trained with each number."""
    cells = []
    for data in ("mnist", "cifar10"):

        def of(step: str, iterations: int, data: str = data) -> Values:
            types: dict[str, Any] = {"types": 64} if data == "cifar10" else {}
            name = f"polarisation{step}"
            return evidence.values(name, DR, data=data, iterations=iterations, **types)

        cells.append(Cell(rises({t: of(f".1.{t}", ITERATIONS[-1]) for t in ITERATIONS})))
        cells.append(Cell(rises({t: of("", t) for t in ITERATIONS})))
    return each(claim, cells, one_sided=False)


@judge("rem-q-fewer-capsules-in-tree")
def _smaller_trees(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Open of a pruned network that guesses, in whose couplings nothing is left to look at."""

    def of(data: str, name: str = "tree_size+K11", **chosen: Any) -> Values:
        return evidence.values(name, "rem_multilayer", data=data, **chosen)

    sets = ("cifar10", "fashion-mnist")
    found = each(claim, [Cell(minus(of(d), of(d, **PRUNED))) for d in sets], corrected=True)
    right = [share for data in sets for share in of(data, "accuracy", **PRUNED).values()]
    is_learned = bool(right) and min(right) > GUESSED
    return found if found is None or is_learned else left_open(found, "a pruned network guesses")


@judge("rem-q-still-equivariant")
def _still_equivariant(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Of the pruned network; records have the unpruned one beside it."""
    share = evidence.values("drawn_components", DR, data="mnist", **PRUNED)
    known = evidence.values("drawn_known", DR, data="mnist", **PRUNED)
    found = each(claim, [Cell(share, "greater", claim.conditions["threshold"])], one_sided=False)
    if found is None or all(known.values()):
        return found
    return left_open(found, "a decoder diverged, and the mean is over the others")


@judge("rem-q-saliency-focus")
def _focuses(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    pruned, whole = (
        evidence.values("focus+K21", "rem_effconv", data="part-whole", **chosen)
        for chosen in (PRUNED, {})
    )
    return each(claim, [Cell(minus(pruned, whole))])


@judge("rem-q-norb-saliency-less")
def _moves_less_on_norb(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Fashion-MNIST and CIFAR-10, each against new elevations and new azimuths, of which the paper
    shows both."""

    def moved(data: str) -> Values:
        return on_grid(evidence, "saliency", data, **PRUNED)

    cells = [
        Cell(minus(moved(other), moved(f"smallnorb-{axis}")))
        for other in ("fashion-mnist", "cifar10")
        for axis in ("elevation", "azimuth")
    ]
    return each(claim, cells, corrected=True)


@judge("rem-q-rem-novel-viewpoint")
def _robust_to_viewpoints(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """On new elevations and on new azimuths: about as accurate, and of a lower entropy."""
    threshold: Mapping[str, float] = claim.conditions["threshold"]

    def gain(name: str, axis: str) -> Values:
        """Of pruning."""
        of = (
            evidence.values(f"{name}+K11", "rem_eff_norb", data=f"smallnorb-{axis}", **chosen)
            for chosen in (PRUNED, {})
        )
        return minus(*of)

    axes = ("elevation", "azimuth")
    accurate = [Cell(gain("accuracy", axis), "greater", threshold["accuracy"]) for axis in axes]
    falls = [
        Cell(times(-1, gain("entropy", axis)), "greater", threshold["entropy"]) for axis in axes
    ]
    return joined(each(claim, accurate, one_sided=False), each(claim, falls))
