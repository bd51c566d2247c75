"""Capsules as rows of bars, couplings as lines between the rows: the ground of two pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from torch import Tensor

from torchcaps._printable import printable
from torchcaps.analysis.trace import check_children, check_trace, last_coupling
from torchcaps.errors import TorchcapsError, short
from torchcaps.types import LayerTrace, Trace
from torchcaps.viz.palette import DEAD, EMPTY, INK, LENGTH, MUTED, WARMTH, cut_to, say

# More capsules a row than this would be a grey band.
MOST_SHOWN = 32
# Of the distance between two rows, which is 1.
BAR = 0.30
# Points above a bar for the name of its capsule.
LABEL = 42
# Points left of the bars for the name of a layer.
SIDE = 46
# What is left of the darkness and width of a line that is not its capsule's strongest.
FADED = 0.3


@dataclass(frozen=True)
class Row:
    """One layer: which of its capsules are shown, their lengths, and which of them are dead."""

    name: str
    shown: Tensor  # int64 [s], capsules in the layer
    length: Tensor  # [s]
    n: int
    std: Tensor | None = None  # [s]
    dead: Tensor | None = None  # bool [s]
    labels: Sequence[str] | None = None

    @property
    def x(self) -> np.ndarray:
        return (np.arange(len(self.shown)) + 0.5) / len(self.shown)


def check_dense(trace: Trace) -> None:
    """Refuse to draw as lines couplings through windows, and layers that do not lead on."""
    check_trace(trace)
    check_lines([layer.name for layer in trace if layer.window is not None])
    for layer in trace:
        check_children(layer)
    sizes = [(layer.name, *last_coupling(layer).shape[-2:]) for layer in trace]
    for k, (below, above) in enumerate(pairwise(trace)):
        if not _leads(below, above):
            _refuse(sizes[k], sizes[k + 1])


def leads_on(trace: Trace) -> bool:
    """Say whether the parents of each layer are the first children of the next, among others."""
    return all(_leads(below, above) for below, above in pairwise(trace))


def _leads(below: LayerTrace, above: LayerTrace) -> bool:
    parents, children = below.routed.parents.pose, above.children.pose
    n, d = parents.shape[1:]
    return n == children.shape[1] or (n < children.shape[1] and d == children.shape[2])


def check_lines(windows: Sequence[str]) -> None:
    """Check the names of the layers that look through windows."""
    if windows:
        raise TorchcapsError(
            f"lines are drawn where every child votes for every parent, but {', '.join(windows)} "
            f"looks through windows; viz.draw_grids draws the maps of such a network."
        )


def check_chain(layers: Sequence[tuple[str, int, int]]) -> None:
    """Refuse layers, (name, children, parents) each, of which one has too few children."""
    for below, above in pairwise(layers):
        if below[2] > above[1]:
            _refuse(below, above)


def _refuse(below: tuple[str, int, int], above: tuple[str, int, int]) -> None:
    raise TorchcapsError(
        f"lines are drawn between layers that lead to each other, but {above[0]} has {above[1]} "
        f"children and {below[0]}, the layer before it in the trace, has {below[2]} parents, so it "
        f"reads something else; draw it alone, from a trace of one layer."
    )


def check_index(trace: Trace, index: int) -> None:
    """Refuse to draw an image that a trace lacks, and layers with windows."""
    check_dense(trace)
    check_shown(trace, index)


def check_shown(trace: Trace, index: int) -> None:
    check_trace(trace)
    count = len(trace[0].children.pose)
    if not -count <= index < count:
        raise TorchcapsError(
            f"index must be one of the {count} images of the trace, counted from 0, but is {index}."
        )


def called(class_names: Sequence[str], n: int) -> list[str]:
    """Return what to call n class capsules, without signs that act on a terminal."""
    if len(class_names) != n:
        raise TorchcapsError(
            f"class_names must name the {n} class capsules in their order, but has "
            f"{len(class_names)} names; leave it out for numbers."
        )
    for name in class_names:
        if not isinstance(name, str):
            raise TorchcapsError(
                f"class_names must be texts, but one is {short(name)}; write "
                f"class_names=[str(name) for name in names], or leave it out for numbers."
            )
    return [printable(name, keep="") for name in class_names]


def longest(length: Tensor) -> Tensor:
    """Choose the capsules to show of a layer with these lengths [n], in their own order."""
    most = min(len(length), MOST_SHOWN)
    return length.topk(most).indices.sort().values


def full_length(lengths: Sequence[tuple[Tensor, Tensor | None]]) -> float:
    """Return the length of a full bar: one where all are squashed, else that of the longest."""
    if all(float(length.max()) <= 1 for length, _ in lengths):
        return 1.0
    return max(float((x if spread is None else x + spread).max()) for x, spread in lengths)


def draw_rows(axes: Axes, rows: Sequence[Row]) -> float:
    """Draw bars from the lowest row up; return the length of a full one."""
    full = full_length([(row.length, row.std) for row in rows])
    for y, row in enumerate(rows):
        width = min(0.62 / len(row.shown), 0.045)
        for k, (x, length) in enumerate(zip(row.x, row.length.tolist(), strict=True)):
            dead = row.dead is not None and bool(row.dead[k])
            colour = DEAD if dead else LENGTH
            for high, fill, order in ((BAR, EMPTY, 1), (BAR * length / full, colour, 3)):
                corner = (x - width / 2, y)
                axes.add_patch(Rectangle(corner, width, high, fc=fill, ec="none", zorder=order))
            if row.std is not None:
                spread = float(row.std[k])
                low, high = max(length - spread, 0.0) / full, min((length + spread) / full, 1.0)
                axes.plot([x, x], [y + BAR * low, y + BAR * high], color=INK, lw=0.8, zorder=4)
            if dead:
                axes.plot(x, y + BAR / 2, marker="x", color=DEAD, ms=4.5, mew=1.4, zorder=5)
        hidden = f"\n{len(row.shown)} of {row.n}" if len(row.shown) < row.n else ""
        label = f"{cut_to(row.name, SIDE, 7.5)}{hidden}"
        say(axes, -0.02, y + BAR / 2, label, ha="right", fontsize=7.5)
        at, towards = (y + BAR + 0.05, "bottom") if y else (-0.05, "top")
        for x, label in zip(row.x, row.labels or (), strict=False):
            shown = cut_to(label, LABEL, 7.5)
            say(axes, x, at, shown, rotation=90, ha="center", va=towards)
    axes.set_xlim(0, 1)
    axes.axis("off")
    return full


def strongest(coupling: Tensor) -> Tensor:
    """Say which couplings [i, j] are the largest of their child; all where it splits evenly."""
    return coupling >= coupling.amax(-1, keepdim=True) * (1 - 1e-5)


def draw_couplings(
    axes: Axes,
    y: int,
    below: Row,
    above: Row,
    coupling: Tensor,
    *,
    warmth: Tensor | None = None,
    full: Tensor | None = None,
) -> None:
    """Draw lines from row y to row y + 1 for couplings [below, above]: darker and wider is
    stronger.

    `warmth` in [0, 1] colours a line by how much it changes from image to image. `full` says which
    lines do not fade.
    """
    strength = coupling.clamp(0, 1).numpy()
    if full is not None:
        strength = np.where(full.numpy(), strength, FADED * strength)
    colours = np.empty((*strength.shape, 4))
    colours[:] = to_rgba(LENGTH) if warmth is None else WARMTH(warmth.clamp(0, 1).numpy())
    dark, wide = _look(strength)
    colours[..., 3] = np.clip(dark, 0, 1)
    # Strong lines last, on top of weak ones; of about the same, those of one colour together.
    about = (24 * strength).round()
    order = np.lexsort((strength.ravel(), colours[..., 0].ravel(), about.ravel()))
    i, j = np.unravel_index(order, strength.shape)
    starts = np.stack([below.x[i], np.full(len(i), y + BAR)], -1)
    ends = np.stack([above.x[j], np.full(len(j), y + 1.0)], -1)
    axes.add_collection(
        LineCollection(
            np.stack([starts, ends], 1).tolist(),
            colors=colours[i, j],
            linewidths=wide[i, j],
            capstyle="round",
            zorder=1,
        )
    )


def draw_legend(axes: Axes, y: float) -> None:
    """Explain what darkness means, at a few couplings."""
    say(axes, 0.0, y, "coupling", color=MUTED)
    for k, value in enumerate((0.06, 0.25, 0.5, 1.0)):
        x = 0.2 + 0.21 * k
        dark, wide = _look(value)
        axes.plot([x, x + 0.07], [y, y], color=LENGTH, alpha=dark, lw=wide, clip_on=False)
        say(axes, x + 0.085, y, f"{value:g}", color=MUTED)


def _look(strength: Any) -> tuple[Any, Any]:
    """Say how dark and how wide the line of a coupling is."""
    return 0.04 + 0.96 * strength, 0.35 + 2.4 * strength
