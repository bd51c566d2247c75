"""The published claims, what runs them, and what our runs say about them.

A claim is what a paper printed. A plan says which jobs measure the claim, or in one word why
nothing is trained for it. A record is what the runs of a job gave, written once, and a verdict
compares records with the claim.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcaps_claims.claim import Claim, claims, claims_of_table, find_claim
    from torchcaps_claims.cost import Cost, cost_of
    from torchcaps_claims.job import Job, Reduced
    from torchcaps_claims.listing import listed_claims
    from torchcaps_claims.of_claims import study_of, study_of_claims
    from torchcaps_claims.outcome import Outcome, outcome_of
    from torchcaps_claims.plan import Plan
    from torchcaps_claims.plans import plan_of
    from torchcaps_claims.result import Result, result_of, results
    from torchcaps_claims.sizes import PublishedSize, published_sizes
    from torchcaps_claims.tables import Table, table
    from torchcaps_claims.verdict import (
        NumberVerdict,
        ShownVerdict,
        StatementVerdict,
        in_every_cell,
        judge,
        judge_count,
        judge_statistic,
        judge_test,
    )

# Fetched when first used: plans load training and with it Lightning.
_NAMES = {
    **dict.fromkeys(("Claim", "claims", "claims_of_table", "find_claim"), "claim"),
    **dict.fromkeys(("Cost", "cost_of"), "cost"),
    **dict.fromkeys(("Job", "Reduced"), "job"),
    **dict.fromkeys(("Outcome", "outcome_of"), "outcome"),
    "Plan": "plan",
    **dict.fromkeys(("PublishedSize", "published_sizes"), "sizes"),
    **dict.fromkeys(("Result", "result_of", "results"), "result"),
    **dict.fromkeys(("Table", "table"), "tables"),
    **dict.fromkeys(("NumberVerdict", "StatementVerdict", "ShownVerdict"), "verdict"),
    **dict.fromkeys(("judge", "judge_count", "judge_statistic", "judge_test"), "verdict"),
    "in_every_cell": "verdict",
    "listed_claims": "listing",
    "plan_of": "plans",
    **dict.fromkeys(("study_of", "study_of_claims"), "of_claims"),
}

__all__ = [
    "Claim",
    "Cost",
    "Job",
    "NumberVerdict",
    "Outcome",
    "Plan",
    "PublishedSize",
    "Reduced",
    "Result",
    "ShownVerdict",
    "StatementVerdict",
    "Table",
    "claims",
    "claims_of_table",
    "cost_of",
    "find_claim",
    "in_every_cell",
    "judge",
    "judge_count",
    "judge_statistic",
    "judge_test",
    "listed_claims",
    "outcome_of",
    "plan_of",
    "published_sizes",
    "result_of",
    "results",
    "study_of",
    "study_of_claims",
    "table",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"torchcaps_claims.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'torchcaps_claims' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
