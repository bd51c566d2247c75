"""Small pictures as text: the same numbers give the same bytes on every machine.

Colours hold on white and on dark pages; every page has the numbers of its picture in words.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torchcaps.report.template import template

WIDTH, ROW, LEFT, RIGHT, TOP, BOTTOM = 640, 24, 290, 80, 16, 40
# A letter at most in the mean of a label: which font a browser has nobody knows.
LETTER = 7
HEIGHT = 260
COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#9a6700")

Point = tuple[float, float]
# A value with its name.
Tick = tuple[float, str]


class Dot(NamedTuple):
    """A row of a picture: a mean with the ends of its interval, where it has one."""

    label: str
    mean: float
    low: float | None = None
    high: float | None = None
    note: str = ""


class Line(NamedTuple):
    """A named line through points (x, y)."""

    label: str
    points: Sequence[Point]


class Cloud(NamedTuple):
    """Named points with a mark each: along a line, or each joined to the first."""

    label: str
    points: Sequence[Point]
    marks: Sequence[str]
    is_line: bool = False


def draw_dots(
    dots: Sequence[Dot], *, label: str, low: float, high: float, mark: float | None = None
) -> str:
    """Draw rows under each other on one axis from `low` to `high`; `mark` is a line across them."""
    left = max(LEFT, 10 + LETTER * max((len(dot.label) for dot in dots), default=0))
    # The picture grows with its labels, and the axis stays as long.
    right = left + WIDTH - LEFT - RIGHT
    notes = max((len(dot.note) for dot in dots), default=0)

    def x(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return left + share * (right - left)

    about = {"dots": dots, "label": label, "low": low, "high": high, "mark": mark, "x": x}
    box = {"left": left, "right": right, "top": TOP, "bottom": TOP + ROW * len(dots), "row": ROW}
    return _drawn("dots.svg", width=right + max(RIGHT, 18 + LETTER * notes), **about, **box)


def draw_lines(lines: Sequence[Line], *, x_label: str, y_label: str) -> str:
    """Draw lines over one axis; both axes begin at the smallest value and end at the largest."""
    x_ends, y_ends = (
        (min(values), max(values))
        for values in zip(*(point for line in lines for point in line.points), strict=True)
    )
    box = {"left": 60, "right": WIDTH - 170, "top": TOP, "bottom": HEIGHT - BOTTOM}
    place = _placed(x_ends, y_ends, **box)
    placed = [line._replace(points=[*map(place, line.points)]) for line in lines]
    about = {"lines": placed, "x_label": x_label, "y_label": y_label, "height": HEIGHT}
    return _drawn("lines.svg", **about, **box, x_ends=x_ends, y_ends=y_ends)


def draw_clouds(
    clouds: Sequence[Cloud],
    *,
    x_label: str,
    y_label: str,
    x_ticks: Sequence[Tick],
    y_ticks: Sequence[Tick],
    key: Sequence[str],
) -> str:
    """Draw points over two axes, which go from the first tick to the last; below them the names of
    the clouds, and beside these what marks mean."""
    box = {"left": 60, "right": WIDTH - 20, "top": TOP + 10, "bottom": 420}
    x_ends, y_ends = ((ticks[0][0], ticks[-1][0]) for ticks in (x_ticks, y_ticks))
    place = _placed(x_ends, y_ends, **box)
    placed = [cloud._replace(points=[*map(place, cloud.points)]) for cloud in clouds]
    about = {"clouds": placed, "x_label": x_label, "y_label": y_label, "key": key}
    below = [box["bottom"] + 54 + 16 * row for row in range(max(len(clouds), len(key)))]
    ticks = {"x_ticks": x_ticks, "y_ticks": y_ticks}
    return _drawn("clouds.svg", **about, **box, **ticks, below=below, place=place)


def _placed(
    x_ends: Point, y_ends: Point, *, left: int, right: int, top: int, bottom: int
) -> Callable[[Point], Point]:
    """Return where a point lies in a picture, whose axes go from end to end."""

    def place(point: Point) -> Point:
        across, up = (
            (value - low) / (high - low)
            for value, (low, high) in zip(point, (x_ends, y_ends), strict=True)
        )
        return left + across * (right - left), bottom - up * (bottom - top)

    return place


def _drawn(name: str, **about: Any) -> str:
    usual = {"width": WIDTH, "colours": COLOURS}
    return f"{template(name, 'torchcaps_claims').render(usual | about)}\n"
