"""Statements judged by records: for each the systems, the statistic and the test of its row.

A module a paper; one more statement is one more function, which `@judge` enters under its name, or
one more line of the table that `judge_each` enters, whose cells all take the same test. A judge
gets the records that name its statement, and returns None while they do not hold what the row asks
for. Where a statement speaks of several cells, the verdict shows the cell that decides it. A seed
that diverged keeps a statement open, unless its judge counts it. A statement without a judge has no
verdict, whatever was run.
"""

from collections.abc import Iterable

from torchcaps.study.record import Record
from torchcaps_claims.claim import Claim

# Each enters its judges.
from torchcaps_claims.judges import gu, mitterreiter, peer, renzulli, tsai  # noqa: F401
from torchcaps_claims.judges.case import JUDGES, Case, Verdict, open_if


def judge_statement(claim: Claim, records: Iterable[Record]) -> Verdict:
    """The verdict on a statement; None where no judge is written for it, or records are missing."""
    verdict, _ = judge_and_read(claim, records)
    return verdict


def judge_and_read(claim: Claim, records: Iterable[Record]) -> tuple[Verdict, tuple[Record, ...]]:
    """Judge a statement, and return the records on which the verdict rests with it."""
    if claim.id not in JUDGES:
        return None, ()
    case = Case(claim, records)
    verdict = JUDGES[claim.id].judge(case)
    # Those that did not diverge may be the better ones.
    if verdict is not None and verdict.word != "undecided":
        seeds = "1 seed" if case.left_out == 1 else f"{case.left_out} seeds"
        because = f"{seeds} diverged, and the mean is over the others"
        verdict = open_if(case.left_out > 0, verdict, because)
    return verdict, case.read
