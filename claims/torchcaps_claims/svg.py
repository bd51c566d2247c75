"""Small pictures as text: the same numbers give the same bytes on every machine.

Colours hold on white and on dark pages; every page has the numbers of its picture in words.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, ROW, LEFT, RIGHT, TOP, BOTTOM = 640, 24, 290, 80, 16, 40
# A letter at most in the mean of a label: which font a browser has nobody knows.
LETTER = 7
HEIGHT = 260
INK, REFERENCE = "#57606a", "#bc4c00"
COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#9a6700")


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
    points: Sequence[tuple[float, float]]


class Cloud(NamedTuple):
    """Named points with a mark each: along a line, or each joined to the first."""

    label: str
    points: Sequence[tuple[float, float]]
    marks: Sequence[str]
    is_line: bool = False


def draw_dots(
    dots: Sequence[Dot], *, label: str, low: float, high: float, mark: float | None = None
) -> str:
    """Rows under each other on one axis from `low` to `high`; `mark` is a line across them."""
    bottom = TOP + ROW * len(dots)
    left = max(LEFT, 10 + LETTER * max((len(dot.label) for dot in dots), default=0))
    # The picture grows with its labels, and the axis stays as long.
    right = left + WIDTH - LEFT - RIGHT

    def x(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return left + share * (right - left)

    parts = [_line(left, bottom, right, bottom)]
    for tick in (low, (low + high) / 2, high):
        parts += [_line(x(tick), bottom, x(tick), bottom + 4)]
        parts += [_text(x(tick), bottom + 16, f"{tick:g}", "middle")]
    parts.append(_text((left + right) / 2, bottom + 33, label, "middle"))
    if mark is not None:
        parts.append(_line(x(mark), TOP - 6, x(mark), bottom, REFERENCE, dash=True))
    for number, dot in enumerate(dots):
        y = TOP + ROW * (number + 0.5)
        parts.append(_text(left - 10, y + 4, dot.label, "end"))
        if dot.low is not None and dot.high is not None:
            parts.append(_line(x(dot.low), y, x(dot.high), y, COLOURS[0], width=2))
        parts.append(f'<circle cx="{x(dot.mean):.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[0]}"/>')
        parts.append(_text(right + 8, y + 4, dot.note, "start"))
    notes = max((len(dot.note) for dot in dots), default=0)
    return _whole(right + max(RIGHT, 18 + LETTER * notes), bottom + BOTTOM, parts)


def draw_lines(lines: Sequence[Line], *, x_label: str, y_label: str) -> str:
    """Lines over one axis; both axes begin at the smallest value and end at the largest."""
    points = [point for line in lines for point in line.points]
    (x_low, x_high), (y_low, y_high) = (_ends(each[k] for each in points) for k in (0, 1))
    left, right, bottom = 60, WIDTH - 170, HEIGHT - BOTTOM

    def place(point: tuple[float, float]) -> tuple[float, float]:
        across = (point[0] - x_low) / (x_high - x_low)
        up = (point[1] - y_low) / (y_high - y_low)
        return left + across * (right - left), bottom - up * (bottom - TOP)

    parts = [_line(left, bottom, right, bottom), _line(left, TOP, left, bottom)]
    for value, spot in ((x_low, left), (x_high, right)):
        parts.append(_text(spot, bottom + 16, f"{value:g}", "middle"))
    for value, spot in ((y_low, bottom), (y_high, TOP)):
        parts.append(_text(left - 8, spot + 4, f"{value:g}", "end"))
    parts.append(_text((left + right) / 2, bottom + 33, x_label, "middle"))
    parts.append(_text(left + 6, TOP - 4, y_label, "start"))
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        spots = [place(point) for point in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y in spots:
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
        parts.append(_text(right + 14, TOP + 18 * (number + 1), line.label, "start", colour))
    return _whole(WIDTH, HEIGHT, parts)


def draw_clouds(
    clouds: Sequence[Cloud],
    *,
    x_label: str,
    y_label: str,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    key: Sequence[str],
) -> str:
    """Points over two axes, which go from the first tick to the last; below them the names of the
    clouds, and beside these what marks mean."""
    left, right, top, bottom = 60, WIDTH - 20, TOP + 10, 420

    def place(point: tuple[float, float]) -> tuple[float, float]:
        across, up = (
            (value - ticks[0][0]) / (ticks[-1][0] - ticks[0][0])
            for value, ticks in zip(point, (x_ticks, y_ticks), strict=True)
        )
        return left + across * (right - left), bottom - up * (bottom - top)

    parts = [_line(left, bottom, right, bottom), _line(left, top, left, bottom)]
    for value, name in x_ticks:
        x, _ = place((value, y_ticks[0][0]))
        parts += [_line(x, bottom, x, bottom + 4), _text(x, bottom + 16, name, "middle")]
    for value, name in y_ticks:
        _, y = place((x_ticks[0][0], value))
        parts += [_line(left - 4, y, left, y), _text(left - 8, y + 4, name, "end")]
    parts.append(_text((left + right) / 2, bottom + 33, x_label, "middle"))
    parts.append(_text(left + 6, top - 8, y_label, "start"))
    below = [bottom + 54 + 16 * row for row in range(max(len(clouds), len(key)))]
    for cloud, colour, y in zip(clouds, COLOURS, below, strict=False):
        spots = [place(point) for point in cloud.points]
        for number, spot in enumerate(spots[1:]):
            start = spots[number if cloud.is_line else 0]
            parts.append(_line(*start, *spot, colour, dash=not cloud.is_line))
        for (x, y_), mark in zip(spots, cloud.marks, strict=True):
            parts.append(f'<circle cx="{x:.1f}" cy="{y_:.1f}" r="3" fill="{colour}"/>')
            parts.append(_text(x + 5, y_ - 4, mark, "start", colour))
        parts.append(_text(left, y, cloud.label, "start", colour))
    parts += [_text(left + 250, y, says, "start") for says, y in zip(key, below, strict=False)]
    return _whole(WIDTH, below[-1] + 16, parts)


def _ends(values: Iterable[float]) -> tuple[float, float]:
    found = list(values)
    return min(found), max(found)


def _line(
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    colour: str = INK,
    *,
    width: int = 1,
    dash: bool = False,
) -> str:
    dashed = ' stroke-dasharray="4 3"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"{dashed}/>'
    )


def _text(x: float, y: float, text: str, anchor: str, colour: str = INK) -> str:
    spot = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {spot} fill="{colour}">{escape(text)}</text>'


def _whole(width: float, height: float, parts: Iterable[str]) -> str:
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" '
        f'font-family="sans-serif" font-size="12">\n{inside}\n</svg>\n'
    )
