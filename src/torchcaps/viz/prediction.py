"""Images, what a network says of them, and what it draws of what it saw."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps._printable import printable
from torchcaps.viz.palette import (
    EMPTY,
    INK,
    LENGTH,
    MUTED,
    PALE,
    WIDTH,
    new_figure,
    show,
    styled,
)

# More bars than this are no longer caption apart; of more classes the highest are drawn.
MOST_BARS = 10
# Inches: a bar, what stands above and below the bars, an image.
BAR, MARGIN, SIDE = 0.15, 0.5, 1.0


class Shown(NamedTuple):
    """One image, and a number from 0 to 1 for each class."""

    title: str
    pixels: Tensor  # [c, h, w]
    measure: Tensor  # [k]
    reconstruction: Tensor | None = None  # [c, h, w]
    # The class that is said: of two that round to one number the bars do not tell.
    winner: int | None = None


@styled
def draw_predictions(rows: Sequence[Shown], class_names: Sequence[str], *, measure: str) -> Figure:
    """Draw one row an image: the image, a bar for each class, the reconstruction.

    The bar of the winner, or else the highest, is darker and has its number. Of more than ten
    classes the ten highest are drawn, in their own order.

    Arguments:
        rows: what is shown of each image.
        class_names: one a class.
        measure: what a bar is, "length" say.

    >>> draw_predictions(rows, ("cat", "dog"), measure="length")
    """
    bars = min(len(class_names), MOST_BARS)
    each = max(BAR * bars, SIDE + 0.1) + MARGIN
    tall = each * len(rows)
    figure = new_figure(tall)
    for at, row in enumerate(rows):
        low = 1 - (at + 1) / len(rows)
        high = low + (each - 0.28) / tall
        figure.text(0.03, high + 0.06 / tall, printable(row.title, keep=""), color=INK)
        _draw_image(figure, row.pixels, 0.03, high, "image")
        if row.reconstruction is not None:
            _draw_image(figure, row.reconstruction, 0.97 - SIDE / WIDTH, high, "reconstruction")
        height = BAR * bars / tall
        wide = 0.18 if row.reconstruction is not None else 0.44
        axes = figure.add_axes((0.44, high - height, wide, height))
        _draw_bars(axes, row, class_names, bars, measure)
    return figure


def _draw_image(figure: Figure, pixels: Tensor, left: float, high: float, caption: str) -> None:
    tall = figure.get_figheight()
    box = (left, high - SIDE / tall, SIDE / WIDTH, SIDE / tall)
    axes = show(figure.add_axes(box), pixels)
    axes.set_xlabel(caption, fontsize=7, color=MUTED)
    axes.spines[:].set_linewidth(0.5)


def _draw_bars(axes: Axes, row: Shown, class_names: Sequence[str], bars: int, caption: str) -> None:
    values = row.measure.detach().float().cpu()
    top = int(values.argmax()) if row.winner is None else row.winner
    rank = values.clone()
    rank[top] = float("inf")
    drawn = rank.topk(bars).indices.sort().values.tolist()
    for y, k in enumerate(drawn):
        value = float(values[k])
        axes.barh(y, 1, height=0.7, color=EMPTY)
        axes.barh(y, min(value, 1), height=0.7, color=LENGTH if k == top else PALE)
        if k == top:
            axes.text(1.04, y, f"{value:.2f}", va="center", fontsize=7, color=INK)
    axes.set_xlim(0, 1)
    axes.set_ylim(bars - 0.5, -0.5)
    names = [_short(class_names[k]) for k in drawn]
    axes.set_yticks(range(bars), names, fontsize=7)
    axes.set_xticks([0, 1])
    axes.tick_params(length=0, labelsize=7)
    hidden = "" if bars == len(values) else f", {bars} highest of {len(values)}"
    axes.set_xlabel(f"{caption}{hidden}", fontsize=7, color=MUTED, labelpad=-6)
    axes.spines[:].set_visible(False)


def _short(name: str) -> str:
    name = printable(name, keep="")
    return name if len(name) <= 10 else f"{name[:9]}…"
