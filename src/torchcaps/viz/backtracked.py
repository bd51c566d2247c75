"""The tree that leads to a class, of one image or a mean [renzulli2025] Figs. 6 and 15–20."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis import capsule_layers, lengths
from torchcaps.analysis.backtrack import backtracked
from torchcaps.analysis.trace import last_coupling
from torchcaps.types import Trace
from torchcaps.viz.layered import MOST_SHOWN, called, check_index, full_length, longest
from torchcaps.viz.palette import INK, LENGTH, LENGTHS, MUTED, cut_to, new_figure, say, styled

# Inches between two layers, and below the lowest.
STEP, FOOT = 0.85, 0.45
# More inches above, where several classes have their names one beside the other.
UPRIGHT = 0.55


@styled
def draw_backtracked(
    trace: Trace,
    *,
    index: int = 0,
    predicted: int | Sequence[int] | None = None,
    class_names: Sequence[str] = (),
) -> Figure:
    """Draw the capsules from which couplings stronger than an even split lead up to the predicted
    class.

    Darker capsules are longer, wider lines couplings stronger. Of a layer with more capsules in the
    tree than fit, those with the strongest couplings into it are shown.

    Arguments:
        trace: of a network whose layers are all dense; or `mean_trace` of many images.
        index: which image of the trace.
        predicted: the class, or several whose trees are joined; the longest of the last layer if
            not given.
        class_names: in the order of the classes.

    >>> draw_backtracked(out.trace, class_names=test.class_names)
    """
    check_index(trace, index)
    layers = capsule_layers(trace)
    length = [lengths(capsules)[index].detach().float().cpu() for _, capsules in layers]
    begin = int(length[-1].argmax()) if predicted is None else predicted
    edges = backtracked(trace, begin, index=index)
    tops = sorted(set(begin)) if isinstance(begin, Sequence) else [begin]
    full = full_length([(each, None) for each in length])
    strength = [last_coupling(layer)[index].detach().float().cpu() for layer in trace]
    rows = [*_in_tree(edges, strength), [tops[k] for k in longest(length[-1][tops]).tolist()]]
    count = len(length[-1])
    names = called(class_names, count) if class_names else list(map(str, range(count)))
    above = UPRIGHT if len(tops) > 1 else 0
    height = STEP * (len(rows) - 1) + 0.4 + FOOT + above
    figure = new_figure(height)
    axes = figure.add_axes((0.2, FOOT / height, 0.78, 1 - FOOT / height))
    for y, coupling in enumerate(strength):
        _draw_edges(axes, y, rows[y], rows[y + 1], edges[y], coupling)
    for y, (row, (name, _)) in enumerate(zip(rows, layers, strict=True)):
        x = _x(len(row))
        axes.scatter(
            x, [y] * len(row), c=length[y][row], cmap=LENGTHS, vmin=0, vmax=full, s=34,
            edgecolors=INK, linewidths=0.5, zorder=3,
        )  # fmt: skip
        inside = len(tops) if y == len(edges) else int(edges[y].any(1).sum())
        shown = f"\n{len(row)} shown" if len(row) < inside else ""
        label = f"{name}\n{inside} of {len(length[y])}{shown}"
        say(axes, -0.04, y, label, ha="right")
    _draw_names(axes, len(rows) - 0.75, [names[k] for k in rows[-1]])
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.3, len(rows) - 0.45 + above / STEP))
    axes.axis("off")
    note = "dark: long capsule; line: coupling above an even split, wide is strong"
    figure.text(0.02, 0.12 / height, note, fontsize=7, color=MUTED)
    return figure


def _in_tree(edges: Sequence[Tensor], strength: Sequence[Tensor]) -> list[list[int]]:
    """Choose the children of each layer that are shown, in their own order."""
    rows = []
    for inside, coupling in zip(edges, strength, strict=True):
        best = (coupling * inside).amax(1)
        count = min(int((best > 0).sum()), MOST_SHOWN)
        rows.append(sorted(best.topk(count).indices.tolist()))
    return rows


def _x(count: int) -> np.ndarray:
    return (np.arange(count) + 0.5) / max(count, 1)


def _draw_names(axes: Axes, y: float, names: Sequence[str]) -> None:
    size, turn = (8, 0) if len(names) == 1 else (6.5, 90)
    for x, name in zip(_x(len(names)), names, strict=True):
        shown = cut_to(name, 72 * UPRIGHT, size) if turn else name
        axes.text(x, y, shown, ha="center", va="bottom", rotation=turn, fontsize=size)


def _draw_edges(
    axes: Axes, y: int, below: list[int], above: list[int], edges: Tensor, coupling: Tensor
) -> None:
    low, high = _x(len(below)), _x(len(above))
    lines, widths = [], []
    for a, i in enumerate(below):
        for b, j in enumerate(above):
            if bool(edges[i, j]):
                lines.append([(low[a], y), (high[b], y + 1)])
                widths.append(0.3 + 2.4 * float(coupling[i, j]))
    axes.add_collection(LineCollection(lines, linewidths=widths, colors=LENGTH, alpha=0.6))
