"""Means with their intervals, one row each."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from torchcaps.analysis import CausalUse
from torchcaps.viz.palette import (
    LENGTH,
    MUTED,
    check_drawn,
    inner_axes,
    new_figure,
    say,
    styled,
)

# A longer label is cut in the middle, where two of them differ least.
MOST_LETTERS = 60

# What couplings are replaced by, and what that takes away.
WAYS = {
    "mean": "one tree for all images: the mean",
    "other": "the tree of another image",
    "same class": "the tree of another image of its class",
    "uniform": "no tree: an even split",
}


@styled
def draw_intervals(
    rows: Sequence[tuple[str, float, float | None, float | None, Sequence[float]]],
    *,
    label: str,
    line: tuple[float, str] | None = None,
    note: str = "dot: mean, line: 95 % interval, ticks: seeds",
    span: tuple[float, float] | None = None,
) -> Figure:
    """Draw each mean as a dot, its interval as a line, and each single value as a small mark.

    Arguments:
        rows: (name, mean, lower end, upper end, values) from the top down; without an interval its
            ends are None.
        label: what the axis shows.
        line: (value, name) of a dashed line across all rows.
        note: what dots, lines and ticks are.
        span: from where to where the axis goes; by default as far as there are values.

    >>> draw_intervals([("twin", 0.97, 0.96, 0.98, [0.969, 0.971])], label="accuracy")
    """
    figure = new_figure(0.45 * len(rows) + 0.7)
    axes = inner_axes(figure, 0.05, 0.45, 0.9, 0.1)
    for place, (name, mean, low, high, values) in enumerate(rows):
        y = len(rows) - 1 - place
        if low is not None and high is not None:
            axes.plot([low, high], [y, y], color=LENGTH, lw=2)
        axes.plot(values, [y] * len(values), "|", color=MUTED, ms=5)
        axes.plot(mean, y, "o", color=LENGTH, ms=5)
        # White behind the name, so that the dashed line does not cross its letters.
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        left_edge = axes.get_yaxis_transform()
        say(axes, 0, y + 0.28, _short(name), transform=left_edge, bbox=ground)
    if span is not None:
        axes.set_xlim(*span)
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
    axes.set_xlabel(f"{label} ({note})" if note else label, fontsize=7.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def draw_causal_use(use: CausalUse) -> Figure:
    """Draw by how many images in a hundred the accuracy falls when the couplings of all layers are
    replaced, with a 95 % interval.

    Arguments:
        use: what `causal_use` found.

    >>> draw_causal_use(causal_use(model, images, labels))
    """
    check_drawn("draw_causal_use", use, CausalUse, "what analysis.causal_use found")
    whole = use.couplings[-1].layer if use.couplings else ""
    rows = [
        (WAYS[each.by], 100 * each.fall, 100 * each.interval[0], 100 * each.interval[1], ())
        for each in use.couplings
        if each.layer == whole
    ]
    label, note = "points of accuracy lost", "line: 95 % interval"
    return draw_intervals(rows, label=label, line=(0, "none lost"), note=note, span=(-10, 100))


def _short(name: str) -> str:
    if len(name) <= MOST_LETTERS:
        return name
    half = MOST_LETTERS // 2
    return f"{name[:half]}…{name[-half:]}"
