"""The page of verdicts that were changed without a new record, and why."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from torchcaps_claims.pages import render
from torchcaps_claims.result import Result
from torchcaps_claims.texts import read_texts
from torchcaps_claims.verdict import NumberVerdict, StatementVerdict

TEXTS: Mapping[str, Mapping[str, Any]] = read_texts("changed")
# Words that say by themselves why a verdict changed.
SILENT = TEXTS["silent"]
WAS = {claim: word for word, claims in TEXTS["was"].items() for claim in claims}


def changed(found: Mapping[str, Result]) -> str:
    """The page: each claim that is otherwise now, and how many went from which word to which."""
    rows = [(found[name], was) for name, was in WAS.items() if found[name].status != was]
    ways = Counter((was, each.status) for each, was in rows)
    by_way = sorted(ways.items(), key=lambda each: (-each[1], each[0]))
    # Numbers of one network have one reason.
    told = [(each, was, why(each)) for each, was in rows if each.status not in SILENT]
    return render("changed.md", rows=rows, ways=by_way, told=told, silent=SILENT)


def why(each: Result) -> str:
    """What changed it: what is said of it, or what the rule says."""
    if each.claim.id in TEXTS["why"]:
        return str(TEXTS["why"][each.claim.id])
    verdict = each.verdict
    if isinstance(verdict, StatementVerdict) and verdict.open_because:
        return f"it leans, since {verdict.open_because}"
    if isinstance(verdict, NumberVerdict) and (verdict.incomparable or verdict.open_because):
        return verdict.incomparable or verdict.open_because or ""
    return "errors are compared, and a printed deviation widens nothing"
