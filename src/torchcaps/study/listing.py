"""Every claim with where it stands."""

from typing import Any

from torchcaps.errors import TorchcapsError, nearest
from torchcaps.study.claim import Claim, claims
from torchcaps.study.papers import plan_of
from torchcaps.study.plan import STATUSES

__all__ = ["listed_claims"]


def listed_claims(*, paper: str | None = None, status: str | None = None) -> list[dict[str, Any]]:
    """Rows with id, paper, where, kind, status, word, needs and the number or the sentence.

    Arguments:
        paper: a key of references.bib; all papers if not given.
        status: one of STATUSES; all if not given.

    >>> len(listed_claims(paper="gu2021", status="cited"))
    8
    """
    if status is not None and status not in STATUSES:
        raise TorchcapsError(f"no claim has the status {status!r}; {nearest(status, STATUSES)}.")
    rows = [_row(claim) for claim in claims(paper=paper)]
    return [row for row in rows if status is None or row["status"] == status]


def _row(claim: Claim) -> dict[str, Any]:
    plan = plan_of(claim)
    return {
        "id": claim.id,
        "paper": claim.paper,
        "where": claim.where,
        "kind": claim.kind,
        "status": plan.status,
        "word": plan.word,
        "shown_by": plan.shown_by,
        "jobs": len(plan.jobs),
        "needs": list(plan.needs),
        "says": claim.statement or f"{claim.metric} {claim.value} {claim.unit or ''}".strip(),
    }
