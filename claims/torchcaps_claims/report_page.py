"""One self-contained HTML file with every claim: printed, ours, and the verdict."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torchcaps.report.template import template

__all__ = ["ClaimRow", "Overview", "Strip", "render_claims"]

# Beyond the ends of what a strip shows, in shares of it.
MARGIN = 0.08


class Strip(NamedTuple):
    """A printed number with its tolerance, and ours with its interval, on one axis."""

    printed: float
    tolerance: float
    mean: float
    low: float | None
    high: float | None

    def places(self) -> dict[str, float]:
        """Where each lies, in percent of the width."""
        low, high = self.ends()
        ends = (self.printed - self.tolerance, self.printed + self.tolerance, low, high)
        left, width = min(ends), (max(ends) - min(ends)) or 1.0
        left, width = left - MARGIN * width, width * (1 + 2 * MARGIN)
        values = {
            "from": ends[0],
            "to": ends[1],
            "printed": self.printed,
            "mean": self.mean,
            "low": low,
            "high": high,
        }
        return {name: round(100 * (value - left) / width, 2) for name, value in values.items()}

    def ends(self) -> tuple[float, float]:
        """Of the interval; a single number has no width."""
        if self.low is None or self.high is None:
            return self.mean, self.mean
        return self.low, self.high


class ClaimRow(NamedTuple):
    """One claim in words. `group` is what its status comes to: stands, falls, undecided, open,
    never."""

    paper: str
    where: str
    id: str
    says: str
    published: str
    ours: str
    status: str
    group: str
    protocol: str
    # Where they lie, by their name.
    records: Mapping[str, str]
    strip: Strip | None


class Overview(NamedTuple):
    """A paper, how many of its claims come to what, and how many of these rest on runs that are
    smaller than the paper's."""

    paper: str
    title: str
    counts: Mapping[str, int]
    reduced: Mapping[str, int]


def render_claims(
    rows: Sequence[ClaimRow],
    *,
    title: str,
    overview: Sequence[Overview],
    provenance: Mapping[str, Any],
) -> str:
    """The page as one string of HTML that asks for nothing outside itself.

    Arguments:
        rows: one a claim.
        title: of the page.
        overview: one a paper, with the same groups in all.
        provenance: how it was made, name by name.

    >>> page = render_claims(rows, title="Claims", overview=overview, provenance={})
    """
    return template("claims.html", "torchcaps_claims").render(
        title=title,
        rows=rows,
        overview=overview,
        groups=list(overview[0].counts) if overview else [],
        statuses=sorted({row.status for row in rows}),
        provenance=provenance,
    )
