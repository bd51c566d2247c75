"""The published claims, what runs them, and what our runs say about them.

A claim is what a paper printed. A plan says which jobs measure the claim, or in one word why
nothing is trained for it. Claims need no extra; plans need the extra [study].
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcaps.study.claim import Claim, claims, claims_of_table, find_claim
    from torchcaps.study.cost import Cost, cost_of
    from torchcaps.study.job import Job, Reduced
    from torchcaps.study.listing import listed_claims
    from torchcaps.study.papers import plan_of
    from torchcaps.study.plan import Plan
    from torchcaps.study.tables import Table, table

# Fetched when first used: plans load training and with it Lightning.
_NAMES = {
    **dict.fromkeys(("Claim", "claims", "claims_of_table", "find_claim"), "claim"),
    **dict.fromkeys(("Cost", "cost_of"), "cost"),
    **dict.fromkeys(("Job", "Reduced"), "job"),
    "Plan": "plan",
    "listed_claims": "listing",
    "plan_of": "papers",
    **dict.fromkeys(("Table", "table"), "tables"),
}

__all__ = [
    "Claim",
    "Cost",
    "Job",
    "Plan",
    "Reduced",
    "Table",
    "claims",
    "claims_of_table",
    "cost_of",
    "find_claim",
    "listed_claims",
    "plan_of",
    "table",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"torchcaps.study.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'torchcaps.study' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
