"""The rows of [mitterreiter2023]: what is trained for each, or why nothing is."""

from torchcaps_claims.claim import Claim
from torchcaps_claims.plan import Plan
from torchcaps_claims.setups import SETUPS

NET = "mitterreiter_5x16"
MODELS = 10  # a cell of Tables 1 and 2 is the mean over ten networks


def measured(claim: Claim) -> Plan:
    """A number of the five-layer network: Tables 1 and 2, and what the text repeats of them."""
    if claim.where == "Table 3":
        return Plan(claim, word="benchmark", shown_by="tests/claims/test_costs.py::test_table_3")
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
    return Plan(claim, jobs, left_open=claim.default)


def adapt(setup: str, system: str, data: str) -> tuple[str, str]:
    """Every system is trained by every protocol."""
    return setup, system
