"""Lines over a common axis, a panel a quantity: training, sizes, costs, and strengths of change."""

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from torchcaps._printable import printable
from torchcaps.analysis import Invariance
from torchcaps.errors import TorchcapsError, nearest
from torchcaps.viz.palette import COLOURS, MUTED, check_drawn, cut_to, in_legend, new_figure, styled

# Lines differ in colour, in dashes and in marks, so that two of them are told apart in grey.
LOOKS: list[dict[str, Any]] = [
    {"color": colour, "marker": mark, "ls": dashes, "ms": 3, "lw": 1.2}
    for dashes, (colour, mark) in product(("-", "--"), zip(COLOURS, "os^Dv", strict=True))
]
# Inches: a panel, its axes, a row of the legend, what stands below.
PANEL, AXES, LEGEND, FOOT = 1.3, 0.98, 0.15, 0.45
# A panel whose values are so many times apart has a logarithmic axis.
WIDE = 50
# By panel, then by line: points (x, y), or with the ends of an interval (x, y, low, high).
Panels = Mapping[str, Mapping[str, Sequence[Sequence[float]]]]


@styled
def draw_curves(panels: Panels, *, x: str, log: bool = False) -> Figure:
    """Draw named lines through points, a panel a quantity; a name has one look in all panels.

    Arguments:
        panels: {quantity: {line: points}}, where a point is (x, y), or (x, y, low, high) with an
            interval.
        x: what the common axis shows.
        log: whether that axis is logarithmic.

    >>> draw_curves({"accuracy": {"capsnet": [(600, 0.71), (6000, 0.95)]}}, x="images", log=True)
    """
    what = '{quantity: {line: points}}, {"accuracy": {"mine": [(1, 0.5)]}} say'
    check_drawn("draw_curves", panels, Mapping, what)
    for lines in panels.values():
        check_drawn("draw_curves", lines, Mapping, what)
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    if not 0 < len(names) <= len(LOOKS):
        raise TorchcapsError(
            f"1 to {len(LOOKS)} lines can be told apart in one picture, but {len(names)} came."
        )
    looks = dict(zip(names, LOOKS, strict=False))
    places = {p[0] for lines in panels.values() for points in lines.values() for p in points}
    head = LEGEND * ((len(names) + 1) // 2) * any(names) + 0.1
    figure = new_figure(PANEL * len(panels) + head + FOOT - 0.2)
    height = figure.get_figheight()
    for at, (title, lines) in enumerate(panels.items()):
        low = height - head - PANEL * (at + 1) + 0.1
        axes = figure.add_axes((0.15, low / height, 0.81, AXES / height))
        for name, points in lines.items():
            across, up, *ends = list(zip(*points, strict=True)) or [(), ()]
            axes.plot(across, up, **looks[name])
            if len(ends) == 2:
                colour = looks[name]["color"]
                axes.fill_between(across, ends[0], ends[1], color=colour, alpha=0.15, lw=0)
        if log:
            axes.set_xscale("log")
            axes.set_xticks(sorted(places), [f"{each:g}" for each in sorted(places)])
            axes.set_xticks([], minor=True)
        else:
            whole = all(float(each).is_integer() for each in places)
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=whole))
        values = [point[1] for points in lines.values() for point in points]
        if values and 0 < WIDE * min(values) < max(values):
            axes.set_yscale("log")
            # Powers would be set as formulas, which no text of ours is.
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_title(printable(title, keep=""), fontsize=7.5, loc="left", pad=2)
        axes.tick_params(length=2, labelsize=7, labelbottom=at == len(panels) - 1)
        axes.grid(axis="y", color=MUTED, alpha=0.25, lw=0.5)
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(x, fontsize=7.5)
    if any(names):
        handles = [axes.plot([], [], **look)[0] for look in looks.values()]
        labels = [in_legend(cut_to(printable(name, keep=""), 105, 7)) for name in names]
        where: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.13, 1), "ncols": 2}
        figure.legend(handles, labels, fontsize=7, frameon=False, handlelength=2.6, **where)
    return figure


def draw_training(
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    fields: Sequence[str] = ("loss", "validation_accuracy"),
    against: str = "epoch",
) -> Figure:
    """Draw what each epoch told, a panel a field and a line a run [tsai2020] Figs. 4 and 5,
    [peer2022] Fig. 2. A field that ends with "/" has a line a layer: gradient_norm/,
    dead_capsules/ and coupling_std/ are those of [mitterreiter2023] Figs. 10 to 12.

    Arguments:
        runs: rows of metrics, as `Run.metrics()` gives them, by the name of the run.
        fields: names in these rows.
        against: the name of what the axis shows.

    >>> draw_training({"mine": run.metrics()}, fields=["accuracy", "gradient_norm/"])
    """
    what = 'metrics by the names of their runs, {"mine": run.metrics()}'
    check_drawn("draw_training", runs, Mapping, what)
    known = list(dict.fromkeys(name for rows in runs.values() for row in rows for name in row))
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for field in fields:
        lines = panels.setdefault(field.replace("_", " ").rstrip("/"), {})
        names = [each for each in known if each.startswith(field) and field[-1:] == "/"]
        for run, name in product(runs, names or [field]):
            line = name.removeprefix(field) or run
            line = f"{run}, {line}" if names and len(runs) > 1 else line
            lines[line] = [
                (row[against], row[name]) for row in runs[run] if {name, against} <= {*row}
            ]
        if not any(lines.values()):
            raise TorchcapsError(f"no epoch tells {field!r}; {nearest(field, known)}.")
    return draw_curves(panels, x=against)


def draw_invariance(found: Invariance, *, change: str = "rotation") -> Figure:
    """Draw how far lengths stay as images change more and more, a line a layer [mitterreiter2023]
    Fig. 4: the cosine of the paper, and Pearson's correlation.

    Arguments:
        found: what `MeasureInvariance` found, of changes with names such as "rotation 30°".
        change: the word before their strengths.

    >>> draw_invariance(invariance, change="rotation")
    """
    check_drawn("draw_invariance", found, Invariance, "what analysis.MeasureInvariance found")
    rows = [(re.fullmatch(r"(.*?) ([-\d.]+) ?(.*)", row.change), row) for row in found.layers]
    own = [(float(said[2]), said[3], row) for said, row in rows if said and said[1] == change]
    if not own:
        kinds = dict.fromkeys(said[1] if said else row.change for said, row in rows)
        raise TorchcapsError(f"no change by {change!r} was measured; {nearest(change, kinds)}.")
    own.sort(key=lambda each: each[0])
    titles = {"pearson": "Pearson's correlation of lengths", "corr": "their cosine"}
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for (field, title), (strength, _, row) in product(titles.items(), own):
        line = panels.setdefault(title, {}).setdefault(row.name, [])
        if (value := getattr(row, field)) is not None:
            line.append((strength, value))
    unit = own[0][1]
    figure = draw_curves(panels, x=f"{change} ({unit})" if unit else change)
    for axes in figure.axes:
        # The same for every network, so that two pictures can be held side by side.
        axes.set(yscale="linear", ylim=(min(-0.1, axes.dataLim.y0), 1.05))
    return figure
