"""The report of all claims: results as one HTML page."""

import os
from pathlib import Path
from urllib.parse import quote

from torchcaps._paths import path_of
from torchcaps.errors import TorchcapsError
from torchcaps.train.digests import write_whole
from torchcaps.train.environment import environment
from torchcaps_claims.claim import PAPERS
from torchcaps_claims.pages import FALLS, NEVER, STANDS, TITLES, ours, protocol, published, says
from torchcaps_claims.report_page import ClaimRow, Overview, Strip, render_claims
from torchcaps_claims.result import Result, results
from torchcaps_claims.verdict import NumberVerdict

__all__ = ["write_claims_report"]

# Open claims wait for a run; nothing that we could run decides the last ones.
GROUPS = ("stands", "falls", "undecided", "open", "never")
ORDER = ("falls", "stands", "undecided", "open", "never")


def write_claims_report(
    out: str | os.PathLike[str], *, evidence: str | os.PathLike[str] = "evidence"
) -> Path:
    """Write the page, and return its path. Its links lead to the records below `evidence`."""
    path = path_of("out", out)
    if path.is_dir():
        raise TorchcapsError(f"{path} is a folder; name a file in it, ending in .html.")
    found = results(evidence)
    to_evidence = os.path.relpath(evidence, path.parent)
    overview = [
        _overview(paper, TITLES[paper], [each for each in found if each.claim.paper == paper])
        for paper in PAPERS
    ]
    untrained = [each for each in found if each.is_untrained]
    about = environment()
    page = render_claims(
        # What is decided comes first, and of that what falls.
        [_row(each, to_evidence) for each in sorted(found, key=lambda r: ORDER.index(group_of(r)))],
        title="Which claims about capsule networks stand?",
        overview=[
            *overview,
            _overview("all", "", found),
            _overview("without training", "", untrained),
        ],
        provenance={name: about[name] for name in ("torchcaps", "commit", "torch", "command")},
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page)
    return path


def group_of(each: Result) -> str:
    """What its status comes to."""
    if each.status in STANDS:
        return "stands"
    if each.status in FALLS:
        return "falls"
    if each.status == "undecided":
        return "undecided"
    return "never" if each.status in NEVER else "open"


def _overview(paper: str, title: str, found: list[Result]) -> Overview:
    return Overview(paper, title, _counts(found), _counts([r for r in found if r.is_reduced]))


def _counts(found: list[Result]) -> dict[str, int]:
    groups = [group_of(each) for each in found]
    return {group: groups.count(group) for group in GROUPS}


def _row(each: Result, to_evidence: str) -> ClaimRow:
    claim = each.claim
    return ClaimRow(
        paper=claim.paper,
        where=claim.where,
        id=claim.id,
        says=says(claim),
        published="" if claim.states else published(claim),
        ours=ours(each) if each.records else "",
        status=each.status if each.status != "tested" else "not run",
        group=group_of(each),
        protocol=protocol(each),
        records={
            # A # in the name of a folder would end the address.
            name: quote(f"{to_evidence}/{record.study}/{name}.json")
            for name, record in sorted(each.records.items())
        },
        strip=_strip(each),
    )


def _strip(each: Result) -> Strip | None:
    verdict = each.verdict
    if not isinstance(verdict, NumberVerdict) or not isinstance(each.claim.value, int | float):
        return None
    found = verdict.ours
    return Strip(float(each.claim.value), verdict.tolerance, found.mean, found.low, found.high)
