"""How many claims stand and fall, and by what.

A row that repeats another, such as a rate beside the count that it is made of, is counted once; a
row that holds by definition is not counted at all.
"""

from collections.abc import Callable, Sequence

from torchcaps_claims.result import Result

STANDS = ("reproduced", "holds", "leans yes")
FALLS = ("better", "worse", "otherwise", "fails", "leans no")
# By the words of plans that train nothing.
BY_IDENTITY = ("count", "shape")


def is_decided(each: Result) -> bool:
    """Whether it stands or falls, and does not only lean."""
    return each.status in STANDS[:-1] + FALLS[:-1]


def is_counted(each: Result) -> bool:
    """Whether it is a finding of its own."""
    return each.claim.repeats is None and each.status != "by definition"


# What decides a claim, in the order of the columns.
WAYS: dict[str, Callable[[Result], bool]] = {
    "identity": lambda x: x.plan.word in BY_IDENTITY and is_decided(x),
    "proof or test": lambda x: x.is_untrained and x.plan.word not in BY_IDENTITY and is_decided(x),
    "training at size": lambda x: not x.is_untrained and not x.is_reduced and is_decided(x),
    "training at full width": lambda x: not x.is_untrained and x.is_reduced and is_decided(x),
    "leans": lambda x: x.status.startswith("leans"),
}


def head_count(found: Sequence[Result]) -> list[str]:
    """How many there are, how many stand and fall by each way, and how many are open, were not run
    at size, are not judged yet, cannot be judged, or are not counted."""
    counted = [each for each in found if is_counted(each)]
    by_way = [[each for each in counted if is_so(each)] for is_so in WAYS.values()]
    cells = [f"{_of(rows, STANDS)} / {_of(rows, FALLS)}" for rows in by_way]
    rest = (
        ("undecided", "on our default"),
        ("not run at size",),
        ("not run", "tested"),
        ("cited", "not testable"),
    )
    others = [str(_of(counted, words)) for words in rest]
    return [str(len(found)), *cells, *others, str(len(found) - len(counted))]


def _of(rows: Sequence[Result], words: Sequence[str]) -> int:
    return sum(each.status in words for each in rows)
