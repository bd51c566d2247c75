"""One self-contained HTML file: verdict, then pictures, then numbers, then how it was made."""

import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from matplotlib.figure import Figure

from torchcaps.analysis import Activity, Keys, RoutingDynamics
from torchcaps.analysis.activity import LayerActivity
from torchcaps.analysis.dynamics import LayerDynamics
from torchcaps.analysis.result import Result
from torchcaps.analysis.shares import Commonest, says_always, wilson
from torchcaps.report.template import template
from torchcaps.report.verdict import FROZEN, PERFECT, WEAK, is_frozen, verdict
from torchcaps.viz import to_svg


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure, what it shows in a line, what a blind reader is told, and what is true of it alone
    and not of the same picture of other networks, which share its title."""

    title: str
    caption: str
    alt: str
    figure: Figure
    note: str = ""

    @property
    def source(self) -> str:
        """The figure as a data URI; inside an <img> the ids of two pictures cannot meet."""
        svg = to_svg(self.figure).encode()
        return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


@dataclasses.dataclass(frozen=True)
class Trees:
    """How many parse trees a network makes, with pictures; `zeros` is the share of its weights that
    is zero, where some were pruned."""

    keys: Keys
    zeros: float | None
    pictures: Sequence[Picture]

    @property
    def count(self) -> int:
        return sum(row.keys for row in self.keys.classes)


@dataclasses.dataclass(frozen=True)
class Dissection:
    """All that is known of one network, which got `right` of `images` held-out images right.

    `classes` says how many of the images show each class.
    """

    label: str
    facts: Mapping[str, str]
    right: int
    images: int
    classes: Mapping[str, int]
    dynamics: RoutingDynamics | None
    activity: Activity | None
    pictures: Sequence[Picture]
    # What else was measured, by name.
    measured: Mapping[str, Result] = field(default_factory=dict)
    # None where the last layer has no parent for each class, or images show several objects.
    trees: Trees | None = None
    # The line that the accuracy has to beat; None where nobody says.
    commonest: Commonest | None = None
    # What the network says of every image, where that is always the same.
    constant: str | None = None
    # Measures in which every class counts the same, as JSON has them and line by line.
    measures: Mapping[str, Any] = field(default_factory=dict)
    measure_lines: Sequence[str] = ()

    def numbers(self) -> dict[str, Any]:
        """Return everything measured, as JSON can hold it."""
        parts: dict[str, Result | None] = {"dynamics": self.dynamics, "activity": self.activity}
        if self.trees is not None:
            parts["keys"] = self.trees.keys
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
    def accuracy(self) -> float:
        return self.right / self.images

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the accuracy: the images vary in it, not the training."""
        return wilson(self.right, self.images)


def render(dissections: Sequence[Dissection], *, title: str, provenance: Mapping[str, Any]) -> str:
    """Write the page as one string of HTML that asks for nothing outside itself.

    Arguments:
        dissections: one a network, as `tasks.dissect` makes them.
        title: the heading of the page.
        provenance: what the foot of the page says of where the numbers are from.

    >>> page = render([dissect(model, test, label="mine")], title="Mine", provenance={})
    """
    return template("report.html").render(
        title=title,
        dissections=[(each, verdict(each.dynamics, each.activity)) for each in dissections],
        comparison=_comparison(dissections),
        rows=_side_by_side([(each, each.pictures) for each in dissections]),
        tree_rows=_side_by_side(
            [(each, each.trees.pictures) for each in dissections if each.trees]
        ),
        activity_columns=_columns(LayerActivity),
        dynamics_columns=_columns(LayerDynamics),
        is_frozen=is_frozen,
        says_always=says_always,
        borders={"frozen": FROZEN, "weak": WEAK, "perfect": PERFECT},
        provenance=provenance,
    )


def _side_by_side(
    networks: Sequence[tuple[Dissection, Sequence[Picture]]],
) -> list[list[tuple[Dissection, Picture]]]:
    """Lay pictures out: one row a kind of picture, one picture a network that has it."""
    most = max((len(pictures) for _, pictures in networks), default=0)
    return [
        [(each, pictures[k]) for each, pictures in networks if k < len(pictures)]
        for k in range(most)
    ]


def _columns(kind: type) -> list[tuple[str, str, str]]:
    """Return (field, unit, meaning) of the scalar quantities of a row."""
    return [
        (each.name, each.metadata["unit"], each.metadata["meaning"])
        for each in dataclasses.fields(kind)
        if "unit" in each.metadata and each.name not in ("mean", "std", "dead")
    ]


def _comparison(dissections: Sequence[Dissection]) -> str | None:
    """Compare two networks, without claiming more than one training run each can tell."""
    if len(dissections) != 2:
        return None
    first, second = dissections
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
    one_answer = [each.label for each in dissections if each.constant is not None]
    if one_answer:
        are = "is" if len(one_answer) == 1 else "are"
        words += f", but {' and '.join(one_answer)} {are} constant"
    return f"{words}. One training run each: no verdict on which is better."
