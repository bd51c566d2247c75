"""Means with their intervals, one row each."""

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from torchcaps.viz.palette import INK, LENGTH, MUTED, STYLE, inner_axes, new_figure

# A longer label is cut in the middle, where two of them differ least.
MOST_LETTERS = 60


def draw_intervals(
    rows: Sequence[tuple[str, float, float | None, float | None, Sequence[float]]],
    *,
    label: str,
    line: tuple[float, str] | None = None,
) -> Figure:
    """Draw a dot a mean, a line its interval, a small mark each single value.

    Arguments:
        rows: (name, mean, lower end, upper end, values) from the top down; without an interval its
            ends are None.
        label: what the axis shows.
        line: (value, name) of a dashed line across all rows.

    >>> draw_intervals([("twin", 0.97, 0.96, 0.98, [0.969, 0.971])], label="accuracy")
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(0.45 * len(rows) + 0.7)
        axes = inner_axes(figure, 0.05, 0.45, 0.9, 0.1)
        for place, (name, mean, low, high, values) in enumerate(rows):
            y = len(rows) - 1 - place
            if low is not None and high is not None:
                axes.plot([low, high], [y, y], color=LENGTH, lw=2)
            axes.plot(values, [y] * len(values), "|", color=MUTED, ms=5)
            axes.plot(mean, y, "o", color=LENGTH, ms=5)
            axes.annotate(
                _short(name),
                (0, y),
                xycoords=("axes fraction", "data"),
                xytext=(0, 5),
                textcoords="offset points",
                fontsize=7.5,
                color=INK,
            )
        if line is not None:
            axes.axvline(line[0], color=MUTED, lw=1, ls="--", zorder=0)
            # Towards the middle, where there is room for its name.
            is_right = line[0] > sum(axes.get_xlim()) / 2
            axes.annotate(
                _short(line[1]),
                (line[0], 1),
                xycoords=("data", "axes fraction"),
                xytext=(-3 if is_right else 3, -2),
                textcoords="offset points",
                ha="right" if is_right else "left",
                va="top",
                fontsize=7.5,
                color=MUTED,
            )
        axes.set_ylim(-0.6, len(rows) - 0.2)
        axes.set_yticks([])
        axes.set_xlabel(f"{label} (dot: mean, line: 95 % interval, ticks: seeds)", fontsize=7.5)
        axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def _short(name: str) -> str:
    if len(name) <= MOST_LETTERS:
        return name
    half = MOST_LETTERS // 2
    return f"{name[:half]}…{name[-half:]}"
