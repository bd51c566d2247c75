"""One image through layers whose capsules lie on grids, drawn as maps and not as lines."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps._checks import check_shape
from torchcaps.analysis import backtracked, capsule_layers, lengths
from torchcaps.analysis.backtrack import children_of, is_chain
from torchcaps.types import Grid, Trace
from torchcaps.viz.layered import called, check_shown, full_length, longest
from torchcaps.viz.palette import (
    EMPTY,
    LENGTH,
    LENGTHS,
    MUTED,
    OVER,
    PALE,
    WIDTH,
    cut_to,
    new_figure,
    say,
    show,
    styled,
)

# Inches: a map, bars, the distance of two rows, names above the bars, what stands below all.
MAP, BARS, GAP, NAMES, FOOT = 0.9, 0.4, 0.14, 0.6, 0.28
# Where the two columns of maps begin and where bars end, as shares of the width.
LEFT, MIDDLE, RIGHT = 0.32, 0.66, 0.96


class _Level(NamedTuple):
    name: str
    length: Tensor  # [n]
    grid: Grid  # one position where there is no grid
    leads: Tensor | None  # bool [n]: whether it is in the tree

    @property
    def is_map(self) -> bool:
        return self.grid[0] * self.grid[1] > 1


@styled
def draw_grids(
    trace: Trace, image: Tensor, *, index: int = 0, class_names: Sequence[str] = ()
) -> Figure:
    """Draw each layer of a network with windows, from the image up to the classes.

    The left map shows how long the longest capsule at each position is. The right one shows which
    share of its capsules leads to the longest capsule of the last layer, by couplings stronger than
    an even split; where layers do not lead to each other there is none. Capsules on no grid are
    bars, dark where they lead there.

    Arguments:
        trace: what `model(images, keep="last").trace` holds, with windows or without.
        image: its pixels, [c, h, w].
        index: the number of the image in the trace.
        class_names: what the capsules of the last layer are called; by default numbers.

    >>> draw_grids(out.trace, images[0], class_names=test.class_names)
    """
    check_shown(trace, index)
    so = f"of a batch give images[index], with the same index={index}"
    check_shape("image", image, ("channels", "height", "width"), so)
    levels = _levels(trace, index % len(trace[0].children.pose))
    top = levels[-1]
    names = called(class_names or [*map(str, range(len(top.length)))], len(top.length))
    full = full_length([(level.length, None) for level in levels])
    heights = [MAP, *(MAP if level.is_map else BARS for level in levels)]
    tall = sum(heights) + GAP * len(levels) + NAMES + FOOT
    figure = new_figure(tall)

    def axes(left: float, right: float = 0) -> Axes:
        """Add axes in the present row: a square, or as far as `right`."""
        width = (right or left + MAP / WIDTH) - left
        return figure.add_axes((left, low / tall, width, height / tall))

    low = FOOT
    for level, height in zip([None, *levels], heights, strict=True):
        label = "image"
        if level is None:
            show(axes(LEFT), image)
            if levels[0].is_map and levels[0].leads is not None:
                _draw_over(axes(MIDDLE), image, levels[0])
        elif level.is_map:
            label = f"{level.name}\n{'×'.join(map(str, level.grid))}"
            _draw_map(axes(LEFT), level.length.unflatten(0, level.grid).amax(-1) / full)
            if level.leads is not None:
                _draw_map(axes(MIDDLE), _share(level.leads, level.grid))
        else:
            label = f"{level.name}\n{len(level.length)}"
            _draw_bars(axes(LEFT, RIGHT), level, full, names if level is top else ())
        say(figure, 0.28, (low + height / 2) / tall, label, ha="right", fontsize=8)
        low += height + GAP
    said = [f"length; dark, full: {full:.3g}", "leads to the answer"]
    if not any(level.is_map for level in levels):
        said = [f"{said[0]}; dark: {said[1]}"]
    for left, caption in zip((LEFT, MIDDLE), said, strict=False):
        say(figure, left, 0.13 / tall, caption, color=MUTED, fontsize=6.5)
    return figure


def _levels(trace: Trace, index: int) -> list[_Level]:
    length = {
        name: lengths(each)[index].detach().float().cpu() for name, each in capsule_layers(trace)
    }
    *_, last = length.values()
    leads: list[Tensor | None] = [None] * len(length)
    if is_chain(trace):
        best = int(last.argmax())
        edges = zip(trace, backtracked(trace, best, index=index), strict=True)
        leads = [children_of(layer, each[None])[0] for layer, each in edges]
        leads.append(torch.arange(len(last)) == best)
    grids = [each.child_grid if each.window is None else each.window.child_grid for each in trace]
    levels = []
    for (name, each), grid, led in zip(length.items(), [*grids, None], leads, strict=True):
        fits = grid is not None and math.prod(grid) == len(each)
        levels.append(_Level(name, each, grid if grid and fits else (1, 1, len(each)), led))
    return levels


def _share(leads: Tensor, grid: Grid) -> Tensor:
    """Give the share of capsules at each position that lead to the answer, [h, w]."""
    share: Tensor = leads.float().unflatten(0, grid).mean(-1)
    return share


def _draw_over(axes: Axes, image: Tensor, lowest: _Level) -> None:
    show(axes, image)
    assert lowest.leads is not None
    share = _share(lowest.leads, lowest.grid).numpy()
    box = (-0.5, image.shape[2] - 0.5, image.shape[1] - 0.5, -0.5)
    axes.imshow(share, cmap=OVER, vmin=0, vmax=1, extent=box)


def _draw_map(axes: Axes, share: Tensor) -> None:
    axes.imshow(share.numpy(), cmap=LENGTHS, vmin=0, vmax=1, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_linewidth(0.5)


def _draw_bars(axes: Axes, level: _Level, full: float, names: Sequence[str]) -> None:
    shown = longest(level.length).tolist()
    for x, k in enumerate(shown):
        colour = LENGTH if level.leads is None or bool(level.leads[k]) else PALE
        axes.bar(x, 1, width=0.7, color=EMPTY)
        axes.bar(x, float(level.length[k]) / full, width=0.7, color=colour)
        if names:
            name = cut_to(names[k], 34, 7)
            say(axes, x, 1.1, name, rotation=90, ha="center", va="bottom", fontsize=7)
    axes.set(xlim=(-0.5, len(shown) - 0.5), ylim=(0, 1))
    axes.axis("off")
