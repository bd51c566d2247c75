"""Pages of the questions that the papers fight over: what is decided, by which numbers, and what is
missing. Everything is a function of claims and records."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from torchcaps.study.record import Record, read_records
from torchcaps.train.digests import write_whole
from torchcaps_claims.asked import QUESTIONS, Question
from torchcaps_claims.families import gains_of, lines_of_families, sentence_of
from torchcaps_claims.judges import JUDGES
from torchcaps_claims.pages import MADE, STANDS, links, ours, protocol, way
from torchcaps_claims.result import Result, results
from torchcaps_claims.svg import Dot, draw_dots
from torchcaps_claims.variants import (
    Difference,
    Variants,
    deaths_of,
    decision_of,
    differences_of,
    lines_of,
    sides_of,
)
from torchcaps_claims.verdict import StatementVerdict

__all__ = ["write_questions"]


DECIDED = ("holds", "fails")


def write_questions(evidence: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[Path]:
    """Write a page a question, and a picture where a record speaks of it; return the paths."""
    found = {each.claim.id: each for each in results(evidence)}
    records = read_records(evidence)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    to_evidence, written = way(folder, evidence), []
    for name, question in QUESTIONS.items():
        rows = [found[claim] for claim in question.answers]
        picture = _picture(rows, question, records)
        if picture is not None:
            written.append(folder / f"{name}.svg")
            write_whole(written[-1], picture)
        else:
            (folder / f"{name}.svg").unlink(missing_ok=True)
        written.append(folder / f"{name}.md")
        statements = [_row(question, each, to_evidence) for each in rows]
        own = [*lines_of_families(question.families, records, to_evidence)]
        own += [line for each in question.own for line in lines_of(each, records, to_evidence)]
        answer = "\n\n".join(_answers(question, rows, records))
        page = _page(question, answer, rows, (*statements, "", *own), picture and written[-2].name)
        write_whole(written[-1], "\n".join(page))
    return written


def anchor(title: str) -> str:
    """What a heading is linked by: its words without commas and the like."""
    return "-".join(re.sub(r"[^\w\s-]", "", title.lower()).split())


def _answers(
    question: Question, rows: Sequence[Result], records: Mapping[str, Record]
) -> Iterator[str]:
    """What networks of ours say in a sentence, what the papers' statements do, and the numbers."""
    for each in question.plain:
        if each.needs <= sides_of(each.variants, records):
            yield each.says
    yield answer_of(question, rows)
    families = sentence_of(question.families, records)
    if families:
        yield f"[{question.families.title}](#{anchor(question.families.title)}): {families}"
    numbers = [
        *((f"[{each.title}]", each, decision_of(each, records)) for each in question.own),
        *((f"Dead capsules in [{e.title}]", e, deaths_of(e, records)) for e in question.dying),
    ]
    said = [f"- {title}({_place(x, question)}): {says}" for title, x, says in numbers if says]
    if said:
        yield "By networks of ours:"
        yield from said


def _place(variants: Variants, question: Question) -> str:
    """Where the table of a study is, as seen from the page of a question."""
    pages = (name for name, each in QUESTIONS.items() if variants in each.own)
    page = "" if variants in question.own else f"{next(pages)}.md"
    return f"{page}#{anchor(variants.title)}"


def answer_of(question: Question, rows: Sequence[Result]) -> str:
    """The plain answer: for it, against it, both, or nothing yet. Fewer than half of the statements
    are no answer, where all of them are on one side."""
    sides = {"yes": 0, "no": 0, "neither": 0}
    for each in rows:
        if each.status in DECIDED:
            sides[_side_of(question, each)] += 1
    decided = sum(sides.values())
    if not decided:
        return f"By statements of the papers: **open.** None of {len(rows)} is decided yet."
    if sides["yes"] and sides["no"]:
        word = "it depends"
    elif 2 * (sides["yes"] + sides["no"]) >= len(rows):
        word = "yes, so far" if sides["yes"] else "no, so far"
    else:
        word = "open"
    counts = ", ".join(f"{n} speak{'s' * (n == 1)} for {side}" for side, n in sides.items() if n)
    are = "is" if decided == 1 else "are"
    of_all = f"Of {len(rows)}, {decided} {are} decided: {counts}."
    return f"By statements of the papers: **{word}.** {of_all}"


def _side_of(question: Question, each: Result) -> str:
    for_it = question.answers[each.claim.id]
    if each.status in STANDS:
        return for_it
    if each.claim.id in question.only_held:
        return "neither"
    return "no" if for_it == "yes" else "yes"


def _page(
    question: Question,
    answer: str,
    rows: Sequence[Result],
    tables: Iterable[str],
    picture: str | None,
) -> Iterator[str]:
    yield f"# {question.title}"
    yield ""
    yield f"{MADE}{question.says}"
    yield ""
    yield answer
    yield ""
    if picture:
        yield f"![Each mean with its 95 % interval, from its threshold]({picture})"
        yield ""
        yield (
            "Right of the line is what a statement claims, or, of networks of ours, what lies "
            "above the one that they are compared with. Every row has a scale of its own. The word "
            "beside a row goes by a wider interval than the picture where several networks are "
            "compared at once, so that all hold together."
        )
        yield ""
    yield "| statement | if it holds | verdict | ours | protocol | records |"
    yield "|---|---|---|---|---|---|"
    yield from tables
    waiting = [each for each in rows if each.status not in DECIDED]
    if waiting:
        yield f"## What is missing for {len(waiting)} of them"
        yield ""
        for each in waiting:
            yield f"- `{each.claim.id}`: {_missing(each)}"
        yield ""


def _row(question: Question, each: Result, to_evidence: str) -> str:
    has_verdict = each.verdict is not None
    cells = (
        f"`{each.claim.id}` {each.claim.statement}",
        question.answers[each.claim.id],
        f"**{each.status}**" if has_verdict else "not judged yet",
        ours(each) if has_verdict else "",
        protocol(each) if has_verdict else "",
        links(each, to_evidence) if has_verdict else "",
    )
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def _missing(each: Result) -> str:
    least = each.claim.conditions["n_seeds_min"]
    if each.claim.id not in JUDGES:
        return "a statistic that records have, and with it a judge."
    if not isinstance(each.verdict, StatementVerdict):
        return f"records of every system it compares, {least} seeds or more each."
    if each.verdict.open_because is not None:
        return f"what leaves it open: {each.verdict.open_because}."
    n = each.verdict.ours.n
    if n < least:
        return f"{n} seeds of the {least} that its row asks for."
    ours = each.verdict.ours
    if ours.low == ours.high == each.verdict.threshold:
        return f"nothing by more seeds: every one of {n} lies exactly on the threshold."
    if ours.low is None or ours.high is None:
        return f"{least} seeds that give an interval."
    if not ours.low <= each.verdict.threshold <= ours.high:
        return "a test of its row that is stricter than the interval shown."
    return f"the interval over {n} seeds lies on both sides of its threshold."


def _picture(
    rows: Sequence[Result], question: Question, records: Mapping[str, Record]
) -> str | None:
    dots = [dot for each in rows if (dot := _dot(each)) is not None]
    for family, found in gains_of(question.families, records):
        dots.append(_dot_of(f"routing in {family.network}", found._replace(label=""), ""))
    for variants in question.own:
        for title, found in differences_of(variants, records):
            dots.append(_dot_of(title.partition(" less ")[0], found, variants.short))
    if not dots:
        return None
    return draw_dots(dots, label="from the threshold", low=-1.0, high=1.0, mark=0.0)


def _dot_of(what: str, found: Difference, short: str) -> Dot:
    """A difference with the farther end of its interval at one."""
    ours = found.interval
    low, high = (ours.mean if end is None else end for end in (ours.low, ours.high))
    scale = max(abs(low), abs(high)) or 1.0
    label = ", ".join(filter(None, (what, found.label, short)))
    return Dot(label, ours.mean / scale, low / scale, high / scale, found.side or "undecided")


def _dot(each: Result) -> Dot | None:
    """A statistic as seen from its threshold, with the farther end of its interval at one."""
    verdict = each.verdict
    if not isinstance(verdict, StatementVerdict):
        return None
    ours, sign = verdict.ours, -1.0 if verdict.side == "less" else 1.0
    low, high = (ours.mean if end is None else end for end in (ours.low, ours.high))
    if verdict.side == "within":
        return None
    ends = sorted(sign * (end - verdict.threshold) for end in (low, high))
    scale = max(abs(end) for end in ends) or 1.0
    mean = sign * (ours.mean - verdict.threshold) / scale
    name = each.claim.id.partition("-q-")[2]
    return Dot(name, mean, ends[0] / scale, ends[1] / scale, verdict.word)
