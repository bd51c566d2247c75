"""Images by the parse tree that they share, and what they look like one over another."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps._printable import printable
from torchcaps.errors import TorchcapsError
from torchcaps.viz.palette import MUTED, WIDTH, new_figure, say, show, styled

# The overlap, then images; where they begin and how far they are apart, as shares of the width.
COLUMNS = 9
FIRST, STEP = 0.27, 0.08
# Inches of a row, and the share of it that an image takes.
ROW, SHARE = STEP * WIDTH, 0.92
# Inches above the first row, and letters of a line left of an image.
HEAD, LETTERS = 0.16, 16


class TreeImages(NamedTuple):
    """One tree: the mean of its images, and some of them."""

    title: str
    overlap: Tensor  # [c, h, w]
    images: Tensor  # [k, c, h, w]


@styled
def draw_dictionary(rows: Sequence[TreeImages]) -> Figure:
    """Draw one row a tree: the overlap of all its images, then up to eight of them.

    Arguments:
        rows: one a tree, with its images.

    >>> draw_dictionary(rows)
    """
    if not rows:
        raise TorchcapsError("there is no tree to draw: no image was given.")
    tall = ROW * len(rows) + HEAD
    figure = new_figure(tall)
    for at, row in enumerate(rows):
        low = 1 - (HEAD + (at + 1) * ROW) / tall
        title = textwrap.fill(printable(row.title, keep=""), LETTERS)
        say(figure, 0.02, low + SHARE * ROW / tall / 2, title, fontsize=7)
        for column, pixels in enumerate([row.overlap, *row.images[: COLUMNS - 1]]):
            side = SHARE * ROW
            left = FIRST + column * STEP
            box = (left, low, side / WIDTH, side / tall)
            axes = show(figure.add_axes(box), pixels)
            if column == 0 and at == 0:
                axes.set_title("overlap", fontsize=7, color=MUTED, pad=2)
            axes.spines[:].set_linewidth(0.5)
    return figure
