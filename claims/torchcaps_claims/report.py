"""The report of all claims: every one printed, ours, and the verdict, in one self-contained HTML
file."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchcaps._paths import path_of, write_whole
from torchcaps.errors import TorchcapsError
from torchcaps.report.template import template
from torchcaps.study.intervals import Interval
from torchcaps.train.folder.environment import environment
from torchcaps_claims.claim import PAPERS
from torchcaps_claims.pages import (
    FALLS,
    LEFT_OPEN,
    NEVER,
    STANDS,
    TITLES,
    ours,
    protocol,
    says,
    within_scale,
)
from torchcaps_claims.result import Result, results
from torchcaps_claims.tables import published
from torchcaps_claims.verdict import NumberVerdict

# Open claims wait for a run; nothing that we could run decides the last ones.
GROUPS = ("stands", "falls", "undecided", "open", "never")
GROUP_OF = {
    **dict.fromkeys(STANDS, "stands"),
    **dict.fromkeys(FALLS, "falls"),
    **dict.fromkeys(LEFT_OPEN, "undecided"),
    **dict.fromkeys((*NEVER, "by definition"), "never"),
}
# What is decided comes first, and of that what falls.
ORDER = ("falls", "stands", "undecided", "open", "never")
# Beyond the ends of what a picture shows, in shares of it.
MARGIN = 0.08


def write_claims_report(
    out: str | os.PathLike[str], *, evidence: str | os.PathLike[str] = "evidence"
) -> Path:
    """Write the page, and return its path. Its links lead to the records below `evidence`."""
    path = path_of("out", out)
    if path.is_dir():
        raise TorchcapsError(f"{path} is a folder; name a file in it, ending in .html.")
    found = results(evidence)
    to_evidence = os.path.relpath(evidence, path.parent)
    about = environment()
    page = render_claims(
        [_row(each, to_evidence) for each in sorted(found, key=lambda r: ORDER.index(group_of(r)))],
        title="Which claims about capsule networks stand?",
        overview=[
            *(_overview(x, TITLES[x], [e for e in found if e.claim.paper == x]) for x in PAPERS),
            _overview("all", "", found),
            _overview("without training", "", [each for each in found if each.is_untrained]),
        ],
        provenance={name: about[name] for name in ("torchcaps", "commit", "torch", "command")},
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page)
    return path


def render_claims(
    rows: Sequence[Mapping[str, Any]],
    *,
    title: str,
    overview: Sequence[Mapping[str, Any]],
    provenance: Mapping[str, Any],
) -> str:
    """The page as one string of HTML that asks for nothing outside itself."""
    return template("claims.html", "torchcaps_claims").render(
        title=title,
        rows=rows,
        overview=overview,
        groups=GROUPS,
        statuses=sorted({row["status"] for row in rows}),
        provenance=provenance,
    )


def group_of(each: Result) -> str:
    """What its status comes to."""
    return GROUP_OF.get(each.status, "open")


def places(printed: float, tolerance: float, found: Interval) -> dict[str, float]:
    """Where a printed number with its tolerance and ours with its interval lie on one axis, in
    percent of its width; a number without an interval has no width."""
    low, high = (found.mean if end is None else end for end in (found.low, found.high))
    ends = (printed - tolerance, printed + tolerance, low, high)
    left, width = min(ends), (max(ends) - min(ends)) or 1.0
    left, width = left - MARGIN * width, width * (1 + 2 * MARGIN)
    names = ("from", "to", "low", "high", "printed", "mean")
    values = zip(names, (*ends, printed, found.mean), strict=True)
    return {name: round(100 * (value - left) / width, 2) for name, value in values}


def _overview(paper: str, title: str, found: Sequence[Result]) -> dict[str, Any]:
    """How many claims come to what, and how many of these rest on runs that are smaller than the
    paper's."""
    groups = [(group_of(each), each.is_reduced) for each in found]
    reduced = {group: groups.count((group, True)) for group in GROUPS}
    counts = {group: groups.count((group, False)) + reduced[group] for group in GROUPS}
    return {"paper": paper, "title": title, "counts": counts, "reduced": reduced}


def _row(each: Result, to_evidence: str) -> dict[str, Any]:
    claim, verdict, at = each.claim, each.verdict, None
    if isinstance(verdict, NumberVerdict) and isinstance(claim.value, int | float):
        at = places(claim.value, verdict.tolerance, within_scale(each, verdict.ours))
    return {
        "paper": claim.paper,
        "where": claim.where,
        "id": claim.id,
        "says": says(claim),
        "published": "" if claim.states else published(claim),
        "ours": ours(each) if each.records else "",
        "status": each.status if each.status != "tested" else "not run",
        "group": group_of(each),
        "protocol": protocol(each),
        "records": {
            # A # in the name of a folder would end the address.
            name: quote(f"{to_evidence}/{record.study}/{name}.json")
            for name, record in sorted(each.records.items())
        },
        "at": at,
    }
