"""The published claims, what runs them, and what our runs say about them.

A claim is what a paper printed. A plan says which jobs measure the claim, or in one word why
nothing is trained for it. A record is what the runs of a job gave, written once, and a verdict
compares records with the claim.
"""

import importlib
from typing import Any

# Fetched when first used: plans load training and with it Lightning.
_HOMES = {
    "claim": ("Claim", "claims", "claims_of_table", "find_claim"),
    "cost": ("Cost", "cost_of"),
    "job": ("Job", "Reduced"),
    "listing": ("listed_claims",),
    "of_claims": ("study_of", "study_of_claims"),
    "outcome": ("Outcome", "outcome_of"),
    "plan": ("Plan",),
    "plans": ("plan_of",),
    "result": ("Result", "result_of", "results"),
    "sizes": ("PublishedSize", "published_sizes"),
    "tables": ("Table", "table"),
    "verdict": (
        *("NumberVerdict", "ShownVerdict", "StatementVerdict"),
        *("judge", "judge_count", "judge_test"),
    ),
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"torchcaps_claims.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'torchcaps_claims' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
