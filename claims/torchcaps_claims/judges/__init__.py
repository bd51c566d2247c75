"""Statements judged by records: for each the systems, the statistic and the test of its row.

A module a paper; one more statement is one more function, which `@judge` enters under its name. A
judge gets the records that name its statement, and returns None while they do not hold what the row
asks for. Where a statement speaks of several cells, the verdict shows the cell that decides it. A
seed that diverged keeps a statement open, unless its judge counts it. A statement without a judge
has no verdict, whatever was run.
"""

from collections.abc import Iterable

from torchcaps.study.record import Record
from torchcaps_claims.claim import Claim

# Each enters its judges.
from torchcaps_claims.judges import (  # noqa: F401
    gu,
    gu_affine,
    gu_compactness,
    gu_drawing,
    mitterreiter,
    peer,
    peer_curves,
    peer_opposites,
    renzulli,
    renzulli_loss,
    renzulli_trees,
    tsai,
    tsai_curves,
)
from torchcaps_claims.judges.evidence import Evidence
from torchcaps_claims.judges.rules import left_open
from torchcaps_claims.judges.table import JUDGES
from torchcaps_claims.verdict import StatementVerdict

__all__ = ["JUDGES", "judge_and_read", "judge_statement"]


def judge_statement(claim: Claim, records: Iterable[Record]) -> StatementVerdict | None:
    """The verdict on a statement; None where no judge is written for it, or records are missing."""
    verdict, _ = judge_and_read(claim, records)
    return verdict


def judge_and_read(
    claim: Claim, records: Iterable[Record]
) -> tuple[StatementVerdict | None, tuple[Record, ...]]:
    """The same, and those of the records on which the verdict rests."""
    if claim.id not in JUDGES:
        return None, ()
    evidence = Evidence(records)
    verdict = JUDGES[claim.id].judge(claim, evidence)
    # Those that did not diverge may be the better ones.
    if verdict is not None and verdict.word != "undecided" and evidence.left_out:
        seeds = "1 seed" if evidence.left_out == 1 else f"{evidence.left_out} seeds"
        verdict = left_open(verdict, f"{seeds} diverged, and the mean is over the others")
    return verdict, evidence.rests_on
