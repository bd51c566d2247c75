"""How long the capsules of each layer are, one mark a capsule, or of many a band."""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis import Activity, LayerActivity
from torchcaps.viz.layered import full_length
from torchcaps.viz.palette import (
    DEAD,
    INK,
    LENGTH,
    MUTED,
    check_drawn,
    inner_axes,
    new_figure,
    say,
    styled,
)

# More marks in a layer than this would be one blot.
MOST_MARKS = 64


@styled
def draw_activity(activity: Activity) -> Figure:
    """Draw the mean length of every capsule with its spread over the images, lowest layer at the
    bottom.

    Arguments:
        activity: what `analysis.capsule_activity` measured.

    >>> draw_activity(analysis.capsule_activity(out.trace))
    """
    what = "what analysis.capsule_activity(trace) measured"
    check_drawn("draw_activity", activity, Activity, what)
    layers = activity.layers
    full = full_length([(layer.mean, layer.std) for layer in layers])
    figure = new_figure(0.62 * len(layers) + 0.75)
    axes = inner_axes(figure, 0.19, 0.42, 0.47, 0.18)
    axes.axvline(activity.thresholds.active, color=MUTED, lw=0.7, ls=(0, (3, 3)), zorder=0)
    for y, layer in enumerate(layers):
        order = layer.mean.argsort()
        if len(order) > MOST_MARKS:
            _draw_band(axes, y, layer, order, full)
            order = order[layer.dead[order]][:MOST_MARKS]
        for place, k in enumerate(order.tolist()):
            height = y + 0.62 * ((place + 0.5) / layer.n - 0.5)
            _draw_capsule(axes, height, layer, k, full)
        dead_text = f"{layer.cds} dead" if layer.cds else "none dead"
        active = f"{layer.cas:.0f}" if layer.cas >= 100 else f"{layer.cas:.3g}"
        text = f"{active} of {layer.n} active\n{dead_text}"
        colour, beside = DEAD if layer.cds else INK, axes.get_yaxis_transform()
        say(axes, 1.04, y, text, transform=beside, color=colour, clip_on=False)
    axes.set_yticks(range(len(layers)), [layer.name for layer in layers])
    axes.set_xlim(0, full)
    axes.set_ylim(-0.5, len(layers) - 0.5)
    axes.set_xlabel("length (line: ± one standard deviation over the images)", fontsize=7.5)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def _draw_band(axes: Axes, y: float, layer: LayerActivity, order: Tensor, full: float) -> None:
    """Draw so many capsules that their marks would be one blot as a line and a band around it."""
    heights = y + 0.62 * ((torch.arange(len(order)) + 0.5) / len(order) - 0.5)
    mean, std = layer.mean[order], layer.std[order]
    ends = (mean - std).clamp(min=0), (mean + std).clamp(max=full)
    axes.fill_betweenx(heights, *ends, color=LENGTH, alpha=0.3, lw=0)
    axes.plot(mean, heights, color=LENGTH, lw=1.4)


def _draw_capsule(axes: Axes, height: float, layer: LayerActivity, k: int, full: float) -> None:
    mean, std, dead = float(layer.mean[k]), float(layer.std[k]), bool(layer.dead[k])
    colour = DEAD if dead else LENGTH
    ends = [max(mean - std, 0), min(mean + std, full)]
    axes.plot(ends, [height] * 2, color=colour, lw=0.6, alpha=0.55)
    marker, size = ("x", 3.6) if dead else ("o", 2.4)
    # The cross of a capsule of length zero lies half beside the axis.
    axes.plot(mean, height, marker=marker, color=colour, ms=size, clip_on=False)
