"""The published claims: what five papers report about capsule networks, as claims/README.md says.

A claim is one number of a table or text, or one statement that can turn out true or false. Nothing
here was measured.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from torchcaps.errors import TorchcapsError, nearest, short

PAPERS = ("mitterreiter2023", "peer2022", "gu2021", "tsai2020", "renzulli2025")
Kind = Literal["accuracy", "metric", "entropy", "sparsity", "params", "qualitative", "theorem"]
# A wheel holds the files beside this module; a clone has them beside the package.
PLACES = (Path(__file__).parent / "papers", Path(__file__).parents[1] / "papers")


@dataclass(frozen=True)
class Claim:
    """One row of claims/; claims/README.md explains every field."""

    id: str
    paper: str
    where: str
    kind: Kind
    system: str | None
    dataset: str | None
    train_set: str | None
    test_set: str | None
    conditions: Mapping[str, Any] = field(hash=False)
    metric: str | None
    value: float | str | None
    std: float | None
    unit: str | None
    note: str | None
    statement: str | None
    check: str | None
    origin: Literal["own", "cited"]
    needs_trained: bool | None = None
    configuration: Literal["unspecified"] | None = None
    expected: Literal["holds", "contradicted"] | None = None
    # How many are printed of a count, where JSON drops a last zero.
    decimals: int | None = None
    # What was run by a choice of ours that the paper leaves open and that may decide.
    default: str | None = None
    # An identity of our own that makes it so, whatever is trained.
    identity: str | None = None
    # The row that says the same of the same networks in another unit or place.
    repeats: str | None = None

    @property
    def states(self) -> bool:
        """Whether it is a statement, and no number."""
        return self.kind in ("qualitative", "theorem")

    @property
    def table(self) -> int | None:
        """The number of the table that it is a cell of."""
        found = re.fullmatch(r"Table (\d+)", self.where)
        return int(found[1]) if found else None


def claims(*, paper: str | None = None, kind: str | None = None) -> tuple[Claim, ...]:
    """The claims of a paper, one of PAPERS, or of all, in the order of the files; those of a kind.

    >>> [claim.value for claim in claims(paper="peer2022", kind="accuracy")][:2]
    [49.61, 99.7]
    """
    if paper is not None and paper not in PAPERS:
        raise TorchcapsError(
            f"paper {short(paper)} has no claims; {nearest(str(paper), PAPERS)}. A new paper is a "
            f"new file in claims/."
        )
    if kind is not None and kind not in get_args(Kind):
        raise TorchcapsError(
            f"no claim is of the kind {short(kind)}; {nearest(str(kind), get_args(Kind))}."
        )
    return tuple(
        claim
        for each in (PAPERS if paper is None else (paper,))
        for claim in _read(each)
        if kind is None or claim.kind == kind
    )


def claims_of_table(paper: str, table: int) -> tuple[Claim, ...]:
    """The cells of one table of a paper, in the order in which they are printed.

    >>> len(claims_of_table("gu2021", 1))  # doctest: +SKIP
    """
    every = claims(paper=paper)
    found = tuple(claim for claim in every if claim.table == table)
    if not found:
        known = sorted({claim.table for claim in every if claim.table is not None})
        raise TorchcapsError(
            f"no claim is a cell of Table {table} of {paper}; there are claims of its tables "
            f"{', '.join(map(str, known))}. Numbers of the text and statements are in "
            f"`torchcaps study claims --paper {paper}`."
        )
    return found


def find_claim(name: str) -> Claim:
    """The claim with an id, as `torchcaps study claims` prints it.

    >>> find_claim("gu2021-t1-capsnet-affnist").value
    79
    """
    every = {claim.id: claim for claim in claims()}
    if name not in every:
        raise TorchcapsError(f"no claim has the id {short(name)}; {nearest(str(name), every)}.")
    return every[name]


def claims_about(what: str) -> tuple[Claim, ...]:
    """All claims of a paper, or the one with an id.

    >>> len(claims_about("peer2022"))
    73
    """
    if what in PAPERS:
        return claims(paper=what)
    every = {claim.id: claim for claim in claims()}
    if what in every:
        return (every[what],)
    near = nearest(str(what).lower(), (*PAPERS, *every))
    # Of so many ids the first few help nobody.
    guess = near if near.startswith("did you mean") else f"papers are {', '.join(PAPERS)}"
    raise TorchcapsError(
        f"no paper and no claim is called {short(what)}; {guess}. `torchcaps study claims` lists "
        f"the claims; a study of your own is a file whose name ends in .toml."
    )


@cache
def _read(paper: str) -> tuple[Claim, ...]:
    for place in PLACES:
        path = place / f"{paper}.json"
        if path.is_file():
            break
    else:
        raise TorchcapsError(
            f"the claims of {paper} are not there: no {paper}.json in "
            f"{' or '.join(map(str, PLACES))}; was the package copied without its data? Install "
            f"torchcaps again."
        )
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return tuple(
            Claim(**{**row, "conditions": MappingProxyType(row["conditions"])}) for row in rows
        )
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError, KeyError) as error:
        raise TorchcapsError(
            f"{path} does not hold claims ({type(error).__name__}: {error}); it must be a list of "
            f"objects with the fields that claims/README.md names."
        ) from None
