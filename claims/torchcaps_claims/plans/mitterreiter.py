"""The rows of [mitterreiter2023]: what is trained for each, or why nothing is."""

from torchcaps_claims.claim import Claim
from torchcaps_claims.plan import Plan, no_run, runs
from torchcaps_claims.plans.rows import plan_row
from torchcaps_claims.setups import SETUPS

NET = "mitterreiter_5x16"
MODELS = 10  # a cell of Tables 1 and 2 is the mean over ten networks


def plan(claim: Claim) -> Plan:
    """What becomes of a row of this paper."""
    planned = plan_row(claim)
    if planned is not None:
        return planned
    if claim.origin == "cited":
        return no_run(claim, "cited")
    if claim.where == "Table 3":
        return no_run(claim, "benchmark", shown_by="tests/claims/test_costs.py::test_table_3")
    return _measured(claim)


def _measured(claim: Claim) -> Plan:
    """A number of the five-layer network: Tables 1 and 2, and what the text repeats of them."""
    assert claim.metric is not None
    metric = claim.metric.split()[0]  # "dys upper bound"
    conditions = claim.conditions
    if "layers" in conditions:
        layers = [int(layer) for layer in conditions["layers"]]
    else:
        layers = [5 if conditions["layer"] == "output" else int(conditions["layer"])]
    jobs = SETUPS["mitt-affnist"].jobs(
        NET, metrics=metric, seeds=MODELS, data=("affnist",), at={"layers": layers}
    )
    return runs(claim, jobs)
