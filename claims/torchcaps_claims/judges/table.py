"""The table of judges, which each of them enters where it is written."""

from collections.abc import Callable
from typing import NamedTuple

from torchcaps_claims.claim import Claim
from torchcaps_claims.judges.evidence import Evidence
from torchcaps_claims.verdict import StatementVerdict

__all__ = ["JUDGES", "Entry", "judge"]

Judge = Callable[[Claim, Evidence], StatementVerdict | None]


class Entry(NamedTuple):
    """The judge of a statement, and which records may stand beside each other before it."""

    judge: Judge
    # It compares no network with another: it may rest on narrow and on wide ones at once.
    with_itself: bool
    # It compares networks on one data set at a time.
    within_a_set: bool


JUDGES: dict[str, Entry] = {}


def judge(
    *names: str, with_itself: bool = False, within_a_set: bool = False
) -> Callable[[Judge], Judge]:
    """Enter a function as the judge of these statements."""

    def enter(function: Judge) -> Judge:
        JUDGES.update(dict.fromkeys(names, Entry(function, with_itself, within_a_set)))
        return function

    return enter
