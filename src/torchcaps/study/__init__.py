"""The published claims, what runs them, and what our runs say about them.

A claim is what a paper printed. A plan says which jobs measure the claim, or in one word why
nothing is trained for it. A record is what the runs of a job gave, written once, and a verdict
compares records with the claim. Claims, records and verdicts need no extra; plans need the extra
[study].
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcaps.study.claim import Claim, claims, claims_of_table, find_claim
    from torchcaps.study.collect import record_of_runs
    from torchcaps.study.comparison import Comparison, Variant, compare
    from torchcaps.study.cost import Cost, cost_of
    from torchcaps.study.intervals import Interval, mean_interval
    from torchcaps.study.job import Job, Reduced
    from torchcaps.study.listing import listed_claims
    from torchcaps.study.papers import plan_of
    from torchcaps.study.plan import Plan
    from torchcaps.study.record import (
        Record,
        Seed,
        make_record,
        read_record,
        read_records,
        write_record,
    )
    from torchcaps.study.result import Result, result_of, results
    from torchcaps.study.sizes import PublishedSize, published_sizes
    from torchcaps.study.tables import Table, table
    from torchcaps.study.verdict import (
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
    **dict.fromkeys(("Comparison", "Variant", "compare"), "comparison"),
    **dict.fromkeys(("Cost", "cost_of"), "cost"),
    **dict.fromkeys(("Job", "Reduced"), "job"),
    "Plan": "plan",
    "record_of_runs": "collect",
    **dict.fromkeys(("Interval", "mean_interval"), "intervals"),
    **dict.fromkeys(("Record", "Seed", "make_record"), "record"),
    **dict.fromkeys(("read_record", "read_records", "write_record"), "record"),
    **dict.fromkeys(("Result", "result_of", "results"), "result"),
    **dict.fromkeys(("NumberVerdict", "StatementVerdict", "ShownVerdict"), "verdict"),
    **dict.fromkeys(("judge", "judge_count", "judge_statistic", "judge_test"), "verdict"),
    "in_every_cell": "verdict",
    "listed_claims": "listing",
    "plan_of": "papers",
    **dict.fromkeys(("PublishedSize", "published_sizes"), "sizes"),
    **dict.fromkeys(("Table", "table"), "tables"),
}

__all__ = [
    "Claim",
    "Comparison",
    "Cost",
    "Interval",
    "Job",
    "NumberVerdict",
    "Plan",
    "PublishedSize",
    "Record",
    "Reduced",
    "Result",
    "Seed",
    "ShownVerdict",
    "StatementVerdict",
    "Table",
    "Variant",
    "claims",
    "claims_of_table",
    "compare",
    "cost_of",
    "find_claim",
    "in_every_cell",
    "judge",
    "judge_count",
    "judge_statistic",
    "judge_test",
    "listed_claims",
    "make_record",
    "mean_interval",
    "plan_of",
    "published_sizes",
    "read_record",
    "read_records",
    "record_of_runs",
    "result_of",
    "results",
    "table",
    "write_record",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"torchcaps.study.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'torchcaps.study' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
