"""Pages of the questions that the papers fight over: what is decided, by which numbers, and what is
missing. Everything is a function of claims and records."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchcaps.study.intervals import Interval
from torchcaps.study.record import Record, read_records
from torchcaps.train.folder.digests import write_whole
from torchcaps_claims.asked import FAMILIES, QUESTIONS, STUDIES, TEXTS, Family, Question
from torchcaps_claims.judges import JUDGES
from torchcaps_claims.pages import STANDS, render, way
from torchcaps_claims.result import Result, results
from torchcaps_claims.svg import Dot, draw_dots
from torchcaps_claims.variants import Difference, Rows, Section, in_brackets, listed
from torchcaps_claims.verdict import LEAST_SEEDS, StatementVerdict

DECIDED = ("holds", "fails")
# A network that routes, beside its twin, and what routing gains.
Gain = tuple[Family, Rows, Difference]


def write_questions(evidence: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[Path]:
    """Write a page a question, and a picture where a record speaks of it; return the paths."""
    found = {each.claim.id: each for each in results(evidence)}
    records = read_records(evidence)
    studies = {name: Rows(variants, records) for name, variants in STUDIES.items()}
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    to_evidence, written = way(folder, evidence), []
    for name, question in QUESTIONS.items():
        rows = [found[claim] for claim in question.answers]
        gains = gains_of(FAMILIES, records) if name == TEXTS["families"]["question"] else []
        own = [studies[each] for each in question.own]
        sections = (families_of(gains, to_evidence), *(each.section(to_evidence) for each in own))
        picture = folder / f"{name}.svg"
        dots = [*_dots(rows, gains, own)]
        if dots:
            axis = {"low": -1.0, "high": 1.0, "mark": 0.0}
            write_whole(picture, draw_dots(dots, label="from the threshold", **axis))
            written.append(picture)
        else:
            picture.unlink(missing_ok=True)
        written.append(folder / f"{name}.md")
        page = render(
            "question.md",
            question=question,
            answers=[*_answers(question, rows, gains, studies)],
            picture=picture.name if dots else None,
            rows=rows,
            sections=[each for each in sections if each is not None],
            missing={x.claim.id: _missing(x) for x in rows if x.status not in DECIDED},
            to_evidence=to_evidence,
        )
        write_whole(written[-1], page)
    return written


def gains_of(families: Sequence[Family], records: Mapping[str, Record]) -> list[Gain]:
    """By how much each network lies above its twin, of those that share three seeds or more; sides
    are those of intervals that hold together for all."""
    pairs = [(family, Rows(family.variants, records)) for family in families]
    there = [
        (family, rows)
        for family, rows in pairs
        for _, gain in rows.differences()
        if gain.interval.n >= LEAST_SEEDS
    ]
    return [
        (family, rows, gain)
        for family, rows in there
        for _, gain in rows.differences(beside=len(there))
    ]


def families_of(gains: Sequence[Gain], evidence: str) -> Section | None:
    """One table of all networks beside their twins; nothing without records."""
    head = ("network", "routing", "images", "routed", "not routed", "routing gains", "records")
    table = []
    for family, rows, gain in gains:
        accuracy = rows.variants.columns[0]._replace(is_compared=False)
        twins = sorted(rows.all, key=lambda row: row is rows.base)
        table.append(
            (
                family.network,
                family.routing,
                family.images,
                *(in_brackets(rows.interval(x, accuracy), x.record.measured) for x in twins),
                in_brackets(gain.interval, gain.interval.n),
                ", ".join(row.link(evidence) for row in twins),
            )
        )
    said = sentence_of(gains)
    title, says = TEXTS["families"]["title"], TEXTS["families"]["says"]
    return Section(title, says, head, table, [said]) if said else None


def sentence_of(gains: Sequence[Gain]) -> str | None:
    """Where routing gains, where it loses, and where neither is certain."""
    words = {"above": "gains in", "below": "loses in", None: "makes no certain difference in"}
    said = []
    for side, verb in words.items():
        networks = [family.network for family, _, gain in gains if gain.side == side]
        said += [f"{verb} {listed(networks)}"] if networks else []
    wider = f"s, widened so that all {len(gains)} hold together" if len(gains) > 1 else ""
    return f"Routing {'; '.join(said)} (95 % interval{wider})." if said else None


def anchor(title: str) -> str:
    """What a heading is linked by: its words without commas and the like."""
    return "-".join(re.sub(r"[^\w\s-]", "", title.lower()).split())


def _answers(
    question: Question, rows: Sequence[Result], gains: Sequence[Gain], studies: Mapping[str, Rows]
) -> Iterator[str]:
    """What networks of ours say in a sentence, what the papers' statements do, and the numbers."""
    for each in question.plain:
        if each.needs <= studies[each.of].sides():
            yield each.says
    yield answer_of(question, rows)
    if families := sentence_of(gains):
        title = TEXTS["families"]["title"]
        yield f"[{title}](#{anchor(title)}): {families}"
    numbers = [
        *(("", name, studies[name].decision()) for name in question.own),
        *(("Dead capsules in ", name, studies[name].deaths()) for name in question.dying),
    ]
    said = [f"- {what}{_link(name, question)}: {says}" for what, name, says in numbers if says]
    if said:
        yield "By networks of ours:"
        yield from said


def _link(study: str, question: Question) -> str:
    """To the table of a study, as seen from the page of a question."""
    pages = (f"{name}.md" for name, each in QUESTIONS.items() if study in each.own)
    title = STUDIES[study].title
    return f"[{title}]({'' if study in question.own else next(pages)}#{anchor(title)})"


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


def _dots(rows: Sequence[Result], gains: Sequence[Gain], own: Sequence[Rows]) -> Iterator[Dot]:
    for each in rows:
        verdict = each.verdict
        if isinstance(verdict, StatementVerdict) and verdict.side != "within":
            # What it claims is right of its threshold.
            sign = -1.0 if verdict.side == "less" else 1.0
            name = each.claim.id.partition("-q-")[2]
            yield _dot(name, verdict.ours, verdict.threshold, sign, verdict.word)
    for family, _, gain in gains:
        yield _dot(f"routing in {family.network}", gain.interval, 0.0, 1.0, gain.side)
    for study in own:
        for title, gain in study.differences():
            parts = (title.partition(" less ")[0], gain.label, study.variants.short)
            yield _dot(", ".join(filter(None, parts)), gain.interval, 0.0, 1.0, gain.side)


def _dot(label: str, ours: Interval, line: float, sign: float, word: str | None) -> Dot:
    """A mean as seen from a line, with the farther end of its interval at one."""
    ends = [ours.mean if end is None else end for end in (ours.mean, ours.low, ours.high)]
    mean, *ends = (sign * (end - line) for end in ends)
    low, high = sorted(ends)
    scale = max(abs(low), abs(high)) or 1.0
    return Dot(label, mean / scale, low / scale, high / scale, word or "undecided")
