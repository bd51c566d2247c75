"""The statement of [renzulli2025] that many weights can be spared."""

from collections.abc import Mapping
from statistics import fmean

from torchcaps.models import MODELS
from torchcaps_claims.claim import Claim, find_claim
from torchcaps_claims.comparable import POINTS
from torchcaps_claims.judges.evidence import NARROWED, Evidence, Values
from torchcaps_claims.judges.renzulli import DEEP, DR, GAMMA, PRUNED, families_on, on_grid
from torchcaps_claims.judges.rules import Cell, each, left_open, minus
from torchcaps_claims.judges.table import judge
from torchcaps_claims.verdict import StatementVerdict

# As the rows of Table 1 spell them.
SETS = {"fashion-mnist": "f-mnist", "cifar10": "cifar-10"}
SPELT = {DR: "dr-capsnet", GAMMA: "gamma-capsnet", DEEP: "deepcaps"}


@judge("rem-q-negligible-loss", with_itself=True)
def _little_is_lost(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """Less than two points on Fashion-MNIST and on CIFAR-10, at a sparsity of 40 % or more in most
    seeds; DR-CapsNet, and whatever there is of the others. Networks as wide as the paper's alone: a
    narrow one may need what a wide one can spare. Open of networks that were trained for less and
    are right less often than the paper's: what more training gives the pruned one is not seen."""
    threshold: Mapping[str, float] = claim.conditions["threshold"]
    cells, is_sparse, is_trained = [], True, True
    for data in SETS:
        for model in families_on(data):
            types = {"types": 64} if (model, data) == (DR, "cifar10") else {}
            options = MODELS[model].options
            wide = {NARROWED: options[NARROWED]} if NARROWED in options else {}
            whole = evidence.values("accuracy", model, data=data, **types, **wide)
            pruned = on_grid(evidence, "accuracy", data, model, **PRUNED, **wide)
            sparsity = evidence.values("sparsity", model, data=data, **types, **PRUNED, **wide)
            loss = minus(whole, pruned)
            if loss or model == DR:
                cells.append(Cell(loss, "less", threshold["accuracy_drop"]))
                enough = [each >= threshold["sparsity_at_least"] for each in sparsity.values()]
                is_sparse = is_sparse and sum(enough) > len(enough) / 2
                is_trained = is_trained and _is_as_right(whole, model, data)
    found = each(claim, cells, one_sided=False, corrected=True)
    if found is None:
        return None
    if evidence.is_reduced and not is_trained:
        return left_open(found, "the networks are right less often than the paper's")
    if found.word != "holds" or is_sparse:
        return found
    return left_open(found, "most networks have more weights left than its row allows")


def _is_as_right(whole: Values, model: str, data: str) -> bool:
    """Whether the unpruned network is right nearly as often as Table 1 prints."""
    printed = find_claim(f"rem-t1-{SETS[data]}-{SPELT.get(model, 'eff-capsnet')}-vanilla-acc").value
    assert isinstance(printed, float)
    return not whole or fmean(whole.values()) >= printed - POINTS
