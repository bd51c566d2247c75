"""Pages of what stands for and against every claim: a page a paper and its appendix, one of the
statements that are decided, one of the verdicts that changed, and an overview.

Everything is a function of claims and records, so the same records give the same bytes.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from torchcaps.report.template import template
from torchcaps.study.intervals import Interval
from torchcaps.study.record import Record
from torchcaps.train.protocols import PROTOCOLS
from torchcaps_claims.claim import PAPERS, Claim
from torchcaps_claims.comparable import accuracies_of, narrower
from torchcaps_claims.headcount import head_count
from torchcaps_claims.intervals import clipped
from torchcaps_claims.result import Result, values_of
from torchcaps_claims.starts import VARIED, Start, Varied
from torchcaps_claims.tables import published
from torchcaps_claims.texts import read_texts
from torchcaps_claims.verdict import (
    NumberVerdict,
    ShownVerdict,
    StatementVerdict,
    is_as_right,
    most_of,
)

# By the paper, and by the id of the claim.
TITLES, REMARKS, JUDGED_OTHERWISE, MEASURED = map(
    read_texts("remarks").__getitem__, ("titles", "remarks", "judged_otherwise", "measured")
)
CHANGED: Mapping[str, Mapping[str, Any]] = read_texts("changed")
WAS = {claim: word for word, claims in CHANGED["was"].items() for claim in claims}
NAMED_RECORDS = re.compile(r" \(records? [0-9a-f]{12}[^)]*\)")
# What a reader asks first: does it stand?
STANDS = ("reproduced", "holds")
FALLS = ("better", "worse", "otherwise", "fails")
LEANS = ("leans yes", "leans no")
LEFT_OPEN = ("undecided", *LEANS, "on our default")
NEVER = ("cited", "not testable")
WAITING = ("not run", "tested")
# Where records lie as seen from a page, and pages as seen from the README.
TO_EVIDENCE, TO_PAGES = "../../../evidence", "claims/pages"
MADE = "`make tables` makes this page from the records in `evidence/`."


def page(paper: str, found: Sequence[Result], to_evidence: str = TO_EVIDENCE) -> str:
    """The page of one paper, in Markdown."""
    counts = Counter({"not judged yet": 0})
    counts.update("not judged yet" if e.status in WAITING else e.status for e in found)
    judged = [each for each in found if each.verdict is not None]
    waiting: dict[str, list[Result]] = {}
    for each in found:
        if each.verdict is None:
            waiting.setdefault(each.claim.where, []).append(each)
    return render(
        "paper.md",
        title=TITLES[paper],
        paper=paper,
        found=found,
        judged=judged,
        counts=sorted(counts.items(), key=lambda each: (-each[1], each[0])),
        # The last section is of what stands in no table.
        tables=sorted({x.claim.table for x in judged}, key=lambda n: (n is None, n)),
        waiting=[
            (where, len(rows), "; ".join(sorted({*map(_why, rows)})))
            for where, rows in waiting.items()
        ],
        varied=[(of, rows) for of in VARIED if (rows := _by_choice(judged, of))],
        to_evidence=to_evidence,
    )


def _by_choice(judged: Sequence[Result], of: Varied) -> list[tuple[Result, list[str], list[Start]]]:
    """Of each claim what each other choice gives, and where its records are."""
    rows = []
    for each in judged:
        known = {start.choice: start for start in each.starts if start.of is of}
        if known:
            scale = _scale(each.claim)
            texts = [known[x].text(*scale) if x in known else "not run" for x in of.choices]
            rows.append((each, texts, [*known.values()]))
    return rows


def appendix(paper: str, found: Sequence[Result], to_evidence: str = TO_EVIDENCE) -> str:
    """How the networks behind each claim of a paper were trained, and their records."""
    trained = [each for each in found if each.verdict is not None and not each.is_untrained]
    return render("records.md", paper=paper, trained=trained, to_evidence=to_evidence)


def decided(found: Sequence[Result]) -> str:
    """The sentences of the papers that came out one way or the other, in Markdown."""
    statements = [each for each in found if each.claim.states]
    sentences = _those(statements, STANDS + FALLS)
    return render(
        "decided.md",
        statements=statements,
        trained=[each for each in sentences if not each.is_untrained],
        leaning=_those(statements, LEANS),
        untrained=[each for each in sentences if each.is_untrained],
    )


def changed(found: Mapping[str, Result]) -> str:
    """The verdicts that changed, and why: each claim that is otherwise now, or was in between, and
    how many went from which word to which."""
    rows = [(found[name], was) for name, was in WAS.items() if found[name].status != was]
    ways = Counter((was, each.status) for each, was in rows)
    by_way = sorted(ways.items(), key=lambda each: (-each[1], each[0]))
    silent = CHANGED["silent"]
    # Numbers of one network have one reason.
    told = [(each, was, why_changed(each)) for each, was in rows if each.status not in silent]
    named: dict[tuple[str, str, str], list[str]] = {}
    for each, was in rows:
        if each.status in silent:
            way = (each.status, was, each.claim.paper)
            named.setdefault(way, []).append(f"`{each.claim.id}`")
    back = [(found[name], *between) for name, between in CHANGED["back"].items()]
    return render(
        "changed.md", rows=rows, ways=by_way, told=told, silent=silent, named=named, back=back
    )


def why_changed(each: Result) -> str:
    """What changed it: what is said of it, or what the rule says."""
    if each.claim.id in CHANGED["why"]:
        return str(CHANGED["why"][each.claim.id])
    verdict = each.verdict
    if isinstance(verdict, StatementVerdict) and verdict.open_because:
        it = "it leans" if each.status in LEANS else "it is open"
        return f"{it}, since {verdict.open_because}"
    if isinstance(verdict, NumberVerdict) and (verdict.incomparable or verdict.open_because):
        return verdict.incomparable or verdict.open_because or ""
    return "errors are compared, and a printed deviation widens nothing"


def overview(found: Sequence[Result], to_pages: str = TO_PAGES) -> str:
    """One line a paper: how many of its claims stand and fall, and by what."""
    papers = {name: head_count([x for x in found if x.claim.paper == name]) for name in PAPERS}
    return render("overview.md", papers=papers, all=head_count(found), to_pages=to_pages).rstrip()


def render(name: str, **context: Any) -> str:
    """Fill a template, which may ask for a part of a result in words."""
    told = (says, said_of_all, published, ours, measured, why_open, protocol, runs, links, mind)
    words = {each.__name__: each for each in told}
    text = template(name, "torchcaps_claims").render(made=MADE, remarks=REMARKS, **words, **context)
    return f"{text.rstrip()}\n"


def _those(found: Sequence[Result], words: Sequence[str]) -> list[Result]:
    return [each for each in found if each.status in words]


def says(claim: Claim, *, without: Sequence[str] = ()) -> str:
    """The statement, or the system that a number is about, without what is said already."""
    if claim.states:
        return claim.statement or ""
    return ", ".join(word for word in _words(claim) if word not in without)


def said_of_all(found: Sequence[Result]) -> list[str]:
    """What all rows of a table are about, and none needs to repeat."""
    words = [_words(each.claim) for each in found]
    return [word for word in words[0] if all(word in others for others in words)]


def _words(claim: Claim) -> list[str]:
    words = [claim.system, claim.dataset, "cited there" if claim.origin == "cited" else None]
    words += [_said(n, value) for n, value in claim.conditions.items() if _is_told(n, value)]
    return [*filter(None, words)]


def _said(name: str, value: object) -> str:
    """A condition in words: "no decoder", "not pruned", "capsule layers 5"."""
    spoken = name.replace("_", " ")
    if isinstance(value, bool):
        denied = "not" if spoken.endswith("ed") else "no"
        return spoken if value else f"{denied} {spoken}"
    return f"{spoken} {value}"


def ours(each: Result) -> str:
    """What we have: the mean with its interval, or how a test shows it."""
    verdict = each.verdict
    if not isinstance(verdict, NumberVerdict | StatementVerdict):
        return "left open by a test" if each.status == "undecided" else "shown by a test"
    found = within_scale(each, verdict.ours)
    if found.n == 0:
        return f"{found.mean:.4g}, counted"
    n = verdict.n_text if isinstance(verdict, StatementVerdict) else str(found.n)
    if failed := sum(record.failed for record in each.records.values()):
        n += f", and {failed} failed"
    return f"{found.text()}, n = {n}"


def within_scale(each: Result, found: Interval) -> Interval:
    """The interval of its verdict, without what lies beyond the scale of its claim."""
    return clipped(found, *_scale(each.claim), values=_values(each, found.n))


def _scale(claim: Claim) -> tuple[float, float]:
    """Everything that is printed counts or is a share; a statement may compare."""
    if claim.states:
        return -math.inf, math.inf
    most = most_of(claim)
    return 0.0, most if most is not None else 100.0 if claim.unit == "%" else math.inf


def _values(each: Result, n: int) -> list[float]:
    """One value a seed, where the number is of so many seeds of one record."""
    by_record = [values_of(each.plan, record) for record in each.records.values()]
    found = by_record[0] if len(by_record) == 1 else None
    return found if found is not None and len(found) == n else []


def measured(each: Result) -> str:
    """What the number of a statement is, with its unit; or the statistic that its row asks for."""
    return str(MEASURED.get(each.claim.id) or each.claim.conditions.get("statistic", ""))


def why_open(each: Result) -> str:
    """What leaves a trained statement undecided, after its verdict."""
    verdict = each.verdict
    if isinstance(verdict, ShownVerdict | None) or verdict.word != "undecided":
        return ""
    return f": {_plain(verdict.open_because or 'its intervals leave it open')}"


def mind(each: Result) -> str:
    """What its number does not say: what keeps it from being decided, and what was done otherwise
    or chosen where the paper is silent."""
    name, verdict = each.claim.id, each.verdict
    because = None if isinstance(verdict, ShownVerdict | None) else verdict.open_because
    said = (because, REMARKS.get(name), JUDGED_OTHERWISE.get(name), each.claim.default)
    # A choice of ours may be what keeps it open.
    return _plain("; ".join(dict.fromkeys(filter(None, said))))


def _plain(text: str) -> str:
    """Leave out which records say so, which the appendix has."""
    return NAMED_RECORDS.sub("", text)


def runs(each: Result) -> str:
    """The size of its networks in a word or two."""
    if not each.records or each.plan.word is not None:
        return protocol(each)
    if not each.is_reduced:
        return "the paper's"
    is_narrow = any(narrower(each.plan, record) for record in each.records.values())
    return "narrower" if is_narrow else "full width"


def protocol(each: Result) -> str:
    """Whether it is the paper's, what is done otherwise, what the paper leaves to choose, and what
    else a reader should know."""
    remark = f"; mind: {REMARKS[each.claim.id]}" if each.claim.id in REMARKS else ""
    if not each.records or each.plan.word is not None:
        return f"no training{remark}"
    records = each.records.values()
    smaller = dict.fromkeys(record.reduced for record in records if record.reduced is not None)
    departures = dict.fromkeys(text for record in records for text in _departures(record))
    if each.claim.id in JUDGED_OTHERWISE:
        departures[JUDGED_OTHERWISE[each.claim.id]] = None
    conditions = "the paper's" if not smaller else f"reduced: {'; '.join(smaller)}"
    verdict = each.verdict
    if isinstance(verdict, NumberVerdict) and verdict.incomparable:
        conditions = f"{verdict.not_comparable()} ({conditions})"
    if isinstance(verdict, NumberVerdict | StatementVerdict) and verdict.open_because:
        conditions = f"{verdict.reason()} ({conditions})"
    choices = each.claim.conditions.get("left_open"), each.plan.left_open, each.claim.default
    # A choice of ours may be what keeps it open, and is told then.
    left_open = dict.fromkeys(x for x in choices if x and x not in conditions)
    chosen = f"; the paper leaves open: {'; '.join(left_open)}" if left_open else ""
    short = _short_of_the_stop(each) if each.claim.states else ""
    others = "".join(f"; {x.said}: {x.text(*_scale(each.claim))}" for x in each.starts)
    return "; departs: ".join((conditions, *departures)) + chosen + others + short + remark


def _departures(record: Record) -> tuple[str, ...]:
    """List what a record departs in: what it names, and what its protocol says, which older studies
    of one's own left out."""
    followed = PROTOCOLS.get(str(record.recipe.get("protocol")))
    # In what a shorter run leaves its own protocol, `reduced` tells already.
    is_told = record.reduced is not None
    named = (x for x in record.departures if not (is_told and ", where the protocol " in x))
    return (*named, *(followed.departures(record.recipe) if followed else ()))


def _short_of_the_stop(each: Result) -> str:
    """Say which networks came to less than the accuracy at which the paper stops."""
    told = []
    for record in each.records.values():
        stop = record.recipe.get("stop_at")
        found = accuracies_of(record)
        if stop is not None and found and not is_as_right(found, 100 * stop):
            told.append(
                f"{record.recipe['model']} came to {fmean(found):.1f} %, and the paper stops at "
                f"{100 * stop:g} %"
            )
    return "".join(f"; mind: {text}" for text in dict.fromkeys(told))


def links(each: Result, to_evidence: str) -> str:
    """To the records of a result."""
    return ", ".join(
        f"[{name}]({to_evidence}/{record.study}/{name}.json)"
        for name, record in sorted(each.records.items())
    )


def _is_told(name: str, value: object) -> bool:
    """Conditions that tell one row of a table from another, and not how all were trained."""
    return isinstance(value, str | int | float) and not name.endswith(("_source", "_assumed"))


def _why(each: Result) -> str:
    """Words that do not change with what torchcaps can do today."""
    if each.status == "not testable":
        return f"{each.status}: {each.plan.word}"
    return each.status if each.status in NEVER else "not judged yet"
