"""Pages of the questions that the papers fight over: an answer, a picture, and an appendix with all
numbers and records. Everything is a function of claims and records."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from torchcaps.study.record import Record
from torchcaps_claims.asked import FAMILIES, QUESTIONS, TEXTS, Question
from torchcaps_claims.headcount import is_counted, is_decided
from torchcaps_claims.pages import LEANS, TITLES, render
from torchcaps_claims.result import Result
from torchcaps_claims.said import Numbers, gain_of, interval, number, pairs_of
from torchcaps_claims.svg import Cloud, Dot, draw_clouds, draw_dots
from torchcaps_claims.variants import NotShown, Rows, Section, in_brackets


def question_pages(
    found: Sequence[Result], records: Mapping[str, Record], to_evidence: str
) -> dict[str, str]:
    """The page, the appendix and the picture of each question, by their places in the folder of
    all pages; without records that a picture could show there is none."""
    by_id = {each.claim.id: each for each in found}
    numbers = Numbers(records)
    texts = {}
    for name, question in QUESTIONS.items():
        rows = [by_id[claim] for claim in question.statements]
        picture = PICTURES[question.picture["kind"]](question.picture, numbers)
        if picture is not None:
            texts[f"questions/{name}.svg"] = picture
        (limits,) = numbers.said([question.limits]) or [""]
        texts[f"questions/{name}.md"] = render(
            "question.md",
            at=name,
            question=question,
            paragraphs=numbers.said(question.answer),
            limits=limits,
            has_picture=picture is not None,
            rows=rows,
        )
        texts[f"records/{name}.md"] = render(
            "numbers.md",
            at=name,
            question=question,
            sections=[*_sections(question, numbers, records, to_evidence)],
            rows=[each for each in rows if each.verdict is not None],
            to_evidence=to_evidence,
        )
    return texts


def front_page(
    found: Sequence[Result], records: Mapping[str, Record], texts: Mapping[str, str], overview: str
) -> str:
    """Each question with the first paragraph of its answer, its picture and how strong it is; the
    findings; and the head count."""
    numbers = Numbers(records)
    answers = [
        (name, question, numbers.said(question.answer[:1]), numbers.said([question.limits]))
        for name, question in QUESTIONS.items()
    ]
    pictures = [name for name in QUESTIONS if f"questions/{name}.svg" in texts]
    decided = [x for x in found if is_counted(x) and is_decided(x) and not x.is_untrained]
    return render(
        "front.md",
        titles=TITLES,
        sentences=[each for each in decided if each.claim.states],
        numbers=[each for each in decided if not each.claim.states],
        leaning=[each for each in found if each.status in LEANS],
        answers=answers,
        pictures=pictures,
        overview=overview,
    )


def _sections(
    question: Question, numbers: Numbers, records: Mapping[str, Record], to_evidence: str
) -> list[Section]:
    found = [numbers.studies[name].section(to_evidence) for name in question.own]
    if question.picture["kind"] == "pairs":
        found.insert(0, families_of(records, to_evidence))
    return [each for each in found if each is not None]


def families_of(records: Mapping[str, Record], to_evidence: str) -> Section | None:
    """One table of all networks beside their twins; nothing without records."""
    table = []
    for family, rows in pairs_of(FAMILIES, records):
        accuracy = rows.variants.columns[0]._replace(is_compared=False)
        twins = sorted(rows.all, key=lambda row: row is rows.base)
        gain = rows.interval(twins[0], rows.variants.columns[0])
        joint = gain_of(rows)
        assert gain is not None
        assert joint is not None
        text = in_brackets(joint, joint.n)
        table.append(
            (
                family.network,
                family.routing,
                family.images,
                *(in_brackets(rows.interval(x, accuracy), x.record.measured) for x in twins),
                in_brackets(gain, gain.n),
                f"**{text}**" if rows.side(twins[0], rows.variants.columns[0]) else text,
                ", ".join(row.link(to_evidence) for row in twins),
            )
        )
    heads = TEXTS["families"]["head"]
    title, says = TEXTS["families"]["title"], TEXTS["families"]["says"]
    return Section(title, says, heads, table) if table else None


def _pairs(told: Mapping[str, Any], numbers: Numbers) -> str | None:
    """What routing gains in each network, with intervals that hold together."""
    dots = []
    for network, rows in numbers.pairs.items():
        found = gain_of(rows)
        assert found is not None
        dots.append(Dot(network, *found[:3], interval(found)))
    return _dots(told, dots)


def _seeds(told: Mapping[str, Any], numbers: Numbers) -> str | None:
    """Accuracy of each row, from the lowest seed to the highest."""
    dots = []
    for label, study, chosen in told["rows"]:
        with suppress(NotShown):
            found = numbers.seeds(study, "accuracy", **chosen)
            mean = sum(found) / len(found)
            dots.append(Dot(f"{label}, n = {len(found)}", mean, found[0], found[-1], number(mean)))
    return _dots(told, dots)


def _dots(told: Mapping[str, Any], dots: Sequence[Dot]) -> str | None:
    if not dots:
        return None
    axis = {"label": told["label"], "low": told["low"], "high": told["high"]}
    return draw_dots(dots, **axis, mark=told.get("mark", 0.0))


def _trade(told: Mapping[str, Any], numbers: Numbers) -> str | None:
    """Entropy against accuracy, of every way to prune from the unpruned, and by iterations."""
    clouds = []
    for label, study, *beside in told["groups"]:
        group = numbers.studies[study]
        arms = [
            (group, row, told["marks"][row.values[0]])
            for row in group.all
            if row.values[0] is not None
        ]
        # Of what stands beside it, the arm that prunes to a sparsity of 0.
        arms += [
            (rows, row, told["marks"]["nothing"])
            for rows in map(numbers.studies.__getitem__, beside)
            for row in rows.all
            if row.values[1] == 0
        ]
        if group.base is not None and arms:
            points = [_place(group, group.base), *(_place(rows, row) for rows, row, _ in arms)]
            clouds.append(Cloud(label, points, ["", *(mark for *_, mark in arms)]))
    label, study = told["curve"]
    curve = numbers.studies[study]
    rows = sorted(curve.all, key=lambda row: row.values)
    if rows:
        points = [_place(curve, row) for row in rows]
        marks = [str(row.values[0]) if row.values[0] < 4 else "" for row in rows]
        clouds.append(Cloud(label, points, marks, is_line=True))
    if not clouds:
        return None
    return draw_clouds(
        clouds,
        x_label="accuracy, %, by the logarithm of the errors",
        y_label="entropy, bit",
        x_ticks=[(_by_errors(each), f"{each:g}") for each in told["accuracies"]],
        y_ticks=[(float(each), str(each)) for each in range(0, 12, 2)],
        key=told["key"],
    )


def _place(rows: Rows, row: Any) -> tuple[float, float]:
    means = []
    for title in ("accuracy", "entropy"):
        found = rows.interval(row, rows.column(title))
        assert found is not None
        means.append(found.mean)
    return _by_errors(means[0]), means[1]


def _by_errors(accuracy: float) -> float:
    return -math.log10(100 - accuracy)


Draw = Callable[[Mapping[str, Any], Numbers], str | None]
PICTURES: Mapping[str, Draw] = {"pairs": _pairs, "seeds": _seeds, "trade": _trade}
