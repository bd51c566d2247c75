"""Parts drawn on images: where an answer comes from, and what lies along a dimension."""

import math
from collections.abc import Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import interpolate

from torchcaps._printable import printable
from torchcaps.viz.palette import INK, PAPER, WIDTH, cut_to, new_figure, show, styled

# Images side by side; inches of one.
ACROSS, SIDE = 5, 1.15


@styled
def draw_parts(images: Tensor, maps: Tensor, carrying: Tensor, titles: Sequence[str]) -> Figure:
    """Draw images [k, c, h, w] with an outline around the positions that carry the answer, bool [k,
    rows, columns], each above its saliency [h, w], of which the largest value is white."""
    columns, bands = min(len(images), ACROSS), math.ceil(len(images) / ACROSS)
    tall, wide = bands * (2 * SIDE + 0.42), SIDE * columns + 0.05
    figure = new_figure(tall, wide, layout="constrained")
    panels = figure.subplots(2 * bands, columns, squeeze=False)
    for at, (pixels, heat, marked) in enumerate(zip(images, maps, carrying, strict=True)):
        above, below = panels[2 * (at // ACROSS) :, at % ACROSS][:2]
        show(above, pixels)
        area = interpolate(marked[None, None].float(), size=heat.shape)[0, 0]
        # What carries nothing is greyed; white on black is seen on every image.
        grey = 0.6 * (1 - area.numpy())
        above.imshow(area.numpy(), cmap="gray", vmin=-1, vmax=1, alpha=grey)
        for colour, width in ((INK, 2.4), (PAPER, 1.0)):
            above.contour(area.numpy(), levels=[0.5], colors=colour, linewidths=width)
        below.imshow(heat.numpy(), cmap="gray", vmin=0)
        told = [cut_to(each, 72 * SIDE - 4, 6) for each in printable(titles[at]).split("\n")]
        above.set_title("\n".join(told), fontsize=6, pad=2)
    for axes in panels.flat:
        axes.axis("off")
    return figure


@styled
def draw_along(images: Tensor, labels: Sequence[str], *, title: str) -> Figure:
    """Draw a row of images for each dimension of a capsule, by its value: [d, m, c, h, w]."""
    tall = (WIDTH / images.shape[1]) * images.shape[3] / images.shape[4] + 0.04
    figure = new_figure(tall * len(images) + 0.3, WIDTH + 0.9, layout="constrained")
    panels = figure.subplots(len(images), 1, squeeze=False)[:, 0]
    for axes, row, label in zip(panels, images, labels, strict=True):
        show(axes, torch.cat(list(row), -1))
        axes.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=6)
        axes.spines[:].set_visible(False)
    figure.suptitle(cut_to(printable(title, keep=""), 72 * WIDTH, 8), fontsize=8)
    return figure
