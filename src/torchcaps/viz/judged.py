"""What answers are worth, to be read in black and white too: confusion, reliability, curves."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps._printable import printable
from torchcaps.viz.palette import INK, MUTED, PAPER, WIDTH, cut_to, new_figure, styled

# With more classes counts are no longer legible, with still more no names.
MOST_COUNTS, MOST_NAMES = 12, 40
# Inches of a panel; points of the widest name.
PANEL, NAME = 1.85, 60


@styled
def draw_confusion(counts: Tensor, class_names: Sequence[str]) -> Figure:
    """Draw counts [k, k] of a class, a row, by answer, a column: the darker, the more of it."""
    k = len(class_names)
    share = (counts / counts.sum(1, keepdim=True).clamp(min=1)).double()
    cell = 0.8 if k <= 4 else max(0.48 if k <= MOST_COUNTS else 4 / k, 0.04)
    names = [cut_to(printable(each, keep=""), NAME, 7) for each in class_names]
    figure = new_figure(cell * k + 1.2, max(cell * k + 1.3, 2.8), layout="constrained")
    axes = figure.add_subplot()
    # The root lets few mistakes among many images be seen.
    axes.imshow(share.sqrt().numpy(), cmap="Greys", vmin=0, vmax=1.15)
    axes.set(xlabel="answer", ylabel="class", xticks=[], yticks=[])
    if k <= MOST_NAMES:
        axes.set_xticks(range(k), names, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(k), names)
    axes.tick_params(length=0, labelcolor=INK, labelsize=7 if k <= MOST_COUNTS else 5)
    for i, j in counts.nonzero().tolist() if k <= MOST_COUNTS else ():
        rate = f"{share[i, j]:.0%}" if share[i, j] >= 0.005 else "<1%"
        told = f"{int(counts[i, j]):,}\n{rate}"
        ink = PAPER if share[i, j] > 0.4 else INK
        axes.text(j, i, told, ha="center", va="center", fontsize=7, color=ink)
    return figure


@styled
def draw_reliability(lines: Mapping[str, Tensor]) -> Figure:
    """Draw one line or two, each sums [3, bins] of answers, their probabilities, and right ones."""
    looks = (("-", "o", INK, INK), ("--", "s", MUTED, PAPER))
    figure = new_figure(4.6 + 0.17 * len(lines), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    above.plot([0, 1], [0, 1], color=MUTED, lw=0.8, ls=":")
    for (label, sums), (style, mark, colour, face) in zip(lines.items(), looks, strict=False):
        there = sums[0] > 0
        x, y = (each[there] / sums[0, there] for each in sums[1:])
        how: dict[str, Any] = {"color": colour, "ls": style, "lw": 1.2}
        points = above.plot(x, y, label=label, clip_on=False, **how)
        points[0].set(marker=mark, markersize=4, markerfacecolor=face)
        edges = [k / sums.shape[1] for k in range(sums.shape[1] + 1)]
        below.stairs(sums[0] / sums[0].sum(), edges, **how)
    above.set(xlim=(0, 1), ylim=(0, 1), ylabel="share of right answers")
    figure.legend(loc="outside upper left", fontsize=7, frameon=False, handlelength=3)
    below.set(ylim=(0, None), xlabel="probability of the answer", ylabel="answers")
    below.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    for axes in (above, below):
        _plain(axes)
    return figure


# What it is and a note on it, its points, its band as x, lower and upper end, and the height of the
# curve of a network that knows nothing, left and right.
Line = tuple[str, str, Sequence[Tensor], Sequence[Any] | None, Sequence[float]]


@styled
def draw_curves(lines: Sequence[Line], *, x: str, y: str) -> Figure:
    """Draw a panel a curve, over its band, and dashed that of a network that knows nothing."""
    columns = min(len(lines), 2 if len(lines) <= 4 else 4)
    rows = math.ceil(len(lines) / columns)
    tall, wide = rows * (PANEL + 0.35) + 0.3, max(WIDTH, columns * PANEL + 0.4)
    figure = new_figure(tall, wide, layout="constrained")
    for at, (title, note, points, band, nothing) in enumerate(lines, 1):
        axes = figure.add_subplot(rows, columns, at)
        axes.plot([0, 1], nothing, color=MUTED, lw=0.9, ls="--")
        if band is not None:
            axes.fill_between(*band, color="#d5dbe1", lw=0)
        axes.plot(*points, color=INK, lw=1.1)
        title = cut_to(printable(title, keep=""), 72 * PANEL - 24, 8)
        axes.set_title(title, fontsize=8, loc="left", pad=12)
        axes.text(0, 1.03, note, fontsize=6.5, transform=axes.transAxes)
        axes.set(xlim=(0, 1), ylim=(0, 1.02), aspect="equal")
        axes.set(xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
        _plain(axes)
    figure.supxlabel(x, fontsize=8)
    figure.supylabel(y, fontsize=8)
    return figure


def _plain(axes: Axes) -> None:
    axes.tick_params(length=2, labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
