"""Every claim with where it stands: its verdict, or why it has none."""

import os
from typing import Any

from torchcaps.errors import TorchcapsError, nearest, short
from torchcaps_claims.plan import STATUSES
from torchcaps_claims.result import Result, results
from torchcaps_claims.verdict import VERDICTS


def listed_claims(
    *,
    paper: str | None = None,
    status: str | None = None,
    evidence: str | os.PathLike[str] = "evidence",
) -> list[dict[str, Any]]:
    """Rows with id, paper, where, kind, status, word and the number or the sentence; those of a
    paper, or of a status: a verdict, or one of STATUSES where there is none.

    >>> len(listed_claims(paper="gu2021", status="cited"))
    8
    """
    known = (*VERDICTS, *STATUSES)
    if status is not None and status not in known:
        raise TorchcapsError(f"no claim has the status {short(status)}; {nearest(status, known)}.")
    rows = [_row(each) for each in results(evidence, paper=paper)]
    return [row for row in rows if status is None or row["status"] == status]


def _row(each: Result) -> dict[str, Any]:
    claim, plan = each.claim, each.plan
    return {
        "id": claim.id,
        "paper": claim.paper,
        "where": claim.where,
        "kind": claim.kind,
        "status": each.status,
        "verdict": None if each.verdict is None else each.verdict.text(),
        "word": plan.word,
        "shown_by": plan.shown_by,
        "jobs": len(plan.jobs),
        "says": claim.statement or f"{claim.metric} {claim.value} {claim.unit or ''}".strip(),
    }
