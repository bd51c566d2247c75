"""One self-contained HTML file: verdict, questions one by one, numbers, and how it was made."""

import base64
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from matplotlib.figure import Figure

from torchcaps.analysis import Activity, CausalUse, Fidelity, Invariance, Keys, RoutingDynamics
from torchcaps.analysis.activity import LayerActivity
from torchcaps.analysis.dynamics import LayerDynamics
from torchcaps.analysis.result import Result
from torchcaps.analysis.shares import Commonest, says_always, wilson
from torchcaps.report.template import template
from torchcaps.report.verdict import (
    FROZEN,
    HOLDS,
    OWN,
    PERFECT,
    QUESTIONS,
    WEAK,
    About,
    Sentence,
    about_count,
    about_truth,
    about_turning,
    about_use,
    is_frozen,
    verdict,
)
from torchcaps.viz import to_svg

# What stays as it is in a data URI between quotes.
SAFE = " /:=;,.()'<>!@*+{}-_"
# Letters of a list that stands in a page as JSON: couplings of a thousand capsules would fill it.
MOST_LETTERS = 20_000
# Lines of a picture that look alike and follow each other.
ALIKE = re.compile(r"(<path d='[^']*)(' [^>]*fill: none;[^>]*/>) ?<path d='([^']*)\2")
DARK = (
    "<style>@media (prefers-color-scheme: dark) { svg { filter: invert(.9) hue-rotate(180deg) } "
    "image { filter: invert(1) hue-rotate(180deg) } }</style></svg>"
)


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure for a question, under a title that pictures of other networks share, with a note."""

    about: About
    title: str
    figure: Figure
    note: str = ""

    @property
    def source(self) -> Markup:
        """The figure as a data URI; inside an <img> the ids of two pictures cannot meet."""
        return Markup("data:image/svg+xml," + quote(_small(to_svg(self.figure)), safe=SAFE))


def _small(svg: str) -> str:
    """Write an SVG shorter, its lines in bundles, and let it turn dark where the page does."""
    svg = svg[svg.index("<svg") :].replace('"', "'")
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r"-opacity: (\d+\.\d+)", lambda m: f"-opacity: {round(25 * float(m[1])) / 25:g}", svg
    )
    svg = re.sub(r"-width: (\d+\.\d+)", lambda m: f"-width: {float(m[1]):.1f}", svg)
    svg = re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.4g}", svg)
    svg = re.sub(r"<g id='[^']*'(/?)>", r"<g\1>", re.sub(r"\s+", " ", svg))
    # What is left of a line where only its marks are drawn.
    svg = re.sub(r"<path d='M [\d.]+ [\d.]+ ' [^>]*/>", "", svg)
    svg = re.sub(r"<g> ?(<path [^>]*/>|<use [^>]*/>) ?</g>", r"\1", svg)
    joined = 1
    while joined:
        svg, joined = ALIKE.subn(r"\1\3\2", svg)
    return svg.replace("</svg>", DARK)


@dataclasses.dataclass(frozen=True)
class Dissection:
    """All that is known of one network, which got `right` of `images` held-out images right;
    `classes` says how many of the images show each class."""

    label: str
    facts: Mapping[str, str]
    right: int
    images: int
    classes: Mapping[str, int]
    dynamics: RoutingDynamics | None
    activity: Activity | None
    pictures: Sequence[Picture]
    measured: Mapping[str, Result] = field(default_factory=dict)
    # None where the last layer has no parent for each class, or images show several objects.
    keys: Keys | None = None
    # The share of its weights that is zero, where some were pruned.
    zeros: float | None = None
    # Of some of the images: as they turn, and with other couplings.
    turned: Invariance | None = None
    use: CausalUse | None = None
    # What is said in place of its accuracy where it is no network: a true tree cannot be wrong.
    told: str | None = None
    # What hiding a patch of the images that are shown does.
    hidden: Sentence | None = None
    commonest: Commonest | None = None
    # What the network says of every image, where that is always the same.
    constant: str | None = None
    # Measures in which every class counts the same, as JSON has them and line by line.
    measures: Mapping[str, Any] = field(default_factory=dict)
    measure_lines: Sequence[str] = ()

    def numbers(self) -> dict[str, Any]:
        """Return everything measured, as JSON can hold it."""
        parts: dict[str, Result | None] = {"dynamics": self.dynamics, "activity": self.activity}
        more = {"keys": self.keys, "turned": self.turned, "use": self.use}
        parts |= {name: each for name, each in more.items() if each is not None}
        parts |= self.measured
        measured = {
            name: None if part is None else json.loads(part.to_json())
            for name, part in parts.items()
        }
        return {
            "accuracy": self.accuracy,
            "images": self.images,
            "commonest": None if self.commonest is None else self.commonest.numbers(),
            "constant": self.constant,
            "measures": dict(self.measures),
            "classes": dict(self.classes),
            **measured,
        }

    @property
    def sentences(self) -> list[Sentence]:
        """What the numbers say, question by question."""
        fidelity = self.measured.get("fidelity")
        more = [
            about_turning(self.turned) if self.turned else None,
            about_count(self.keys) if self.keys else None,
            self.hidden,
            about_use(self.use) if self.use else None,
            about_truth(fidelity) if isinstance(fidelity, Fidelity) else None,
        ]
        return [*verdict(self.dynamics, self.activity), *(each for each in more if each)]

    @property
    def tree_count(self) -> int:
        return 0 if self.keys is None else sum(row.keys for row in self.keys.classes)

    @property
    def accuracy(self) -> float:
        return self.right / self.images

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the accuracy; images vary in it, not the training."""
        found: Mapping[str, Any] | None = self.measures.get("accuracy")
        return wilson(self.right, self.images) if found is None else found["interval"]


def render(dissections: Sequence[Dissection], *, title: str, provenance: Mapping[str, Any]) -> str:
    """Write the page as one string of HTML that asks for nothing outside itself.

    Arguments:
        dissections: one a network, as `tasks.dissect` makes them.
        title: the heading of the page.
        provenance: what the foot of the page says of where the numbers are from.

    >>> page = render([dissect(model, test, label="mine")], title="Mine", provenance={})
    """
    whole = json.dumps({each.label: each.numbers() for each in dissections})
    short = json.loads(
        whole, parse_float=lambda digits: round(float(digits), 6), object_hook=_without_long
    )
    numbers = json.dumps(short).encode()
    return template("report.html").render(
        title=title,
        dissections=dissections,
        comparison=_comparison(dissections),
        questions=[
            (about, question, _rows(dissections, about))
            for about, question in QUESTIONS.items()
            if any(each.about == about for one in dissections for each in one.sentences)
        ],
        numbers=base64.b64encode(numbers).decode(),
        activity_columns=_columns(LayerActivity),
        dynamics_columns=_columns(LayerDynamics),
        is_frozen=is_frozen,
        says_always=says_always,
        borders={"frozen": FROZEN, "weak": WEAK, "perfect": PERFECT, "holds": HOLDS, "own": OWN},
        provenance=provenance,
    )


def _rows(
    dissections: Sequence[Dissection], about: About
) -> dict[str, list[tuple[Dissection, Picture]]]:
    """Lay the pictures of a question out: one row a title, one picture a network that has it."""
    rows: dict[str, list[tuple[Dissection, Picture]]] = {}
    for each in dissections:
        for picture in each.pictures:
            if picture.about == about:
                rows.setdefault(picture.title, []).append((each, picture))
    return rows


def _without_long(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out lists of more numbers than fit; lists of objects stay."""
    lists = {name for name, value in found.items() if type(value) is list and "{" not in str(value)}
    long = {name for name in lists if len(str(found[name])) > MOST_LETTERS}
    return found | dict.fromkeys(long, "left out; torchcaps dissect --json has it")


def _columns(kind: type) -> list[tuple[str, str, str]]:
    """Return (field, unit, meaning) of the scalar quantities of a row."""
    return [
        (each.name, each.metadata["unit"], each.metadata["meaning"])
        for each in dataclasses.fields(kind)
        if "unit" in each.metadata and each.name not in ("mean", "std", "dead")
    ]


def _comparison(dissections: Sequence[Dissection]) -> str | None:
    """Compare two networks, without claiming more than one training run each can tell."""
    networks = [each for each in dissections if each.told is None]
    if len(networks) != 2:
        return None
    first, second = networks
    if (first.classes, first.facts.get("images")) != (second.classes, second.facts.get("images")):
        return (
            f"{first.label} and {second.label} were shown different images, so their accuracies "
            f"cannot be compared."
        )
    # Of the figures that stand on the page, so that a reader who subtracts finds the same.
    gap = round(100 * first.accuracy, 1) - round(100 * second.accuracy, 1)
    how = f"{abs(gap):.1f} points {'more' if gap > 0 else 'less'} accurate than {second.label}"
    words = (
        f"{first.label} and {second.label} are equally accurate here"
        if abs(gap) < 0.05
        else f"{first.label} is {how} here"
    )
    one_answer = [each.label for each in networks if each.constant is not None]
    if one_answer:
        are = "is" if len(one_answer) == 1 else "are"
        words += f", but {' and '.join(one_answer)} {are} constant"
    return f"{words}. One training run each: no verdict on which is better."
