"""Colours and fonts of every picture, and the way from a figure to a file."""

import io
import os
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from torch import Tensor

from torchcaps._paths import beside, path_of
from torchcaps._printable import printable
from torchcaps.errors import TorchcapsError

INK = "#1d2733"
MUTED = "#76818f"
PAPER = "#ffffff"
LENGTH = "#2f6f9f"
# Dead capsules also carry a cross: colour alone does not reach everyone.
DEAD = "#c23b22"
# A bar that is not the one meant, and the ground of a bar.
PALE, EMPTY = "#9dbdd5", "#eef1f4"
# Lines of several networks; their dashes and marks differ too.
COLOURS = (LENGTH, "#e08214", "#2c7a4b", "#8a6a8f", DEAD)
# Nothing to much; over an image nothing is clear.
LENGTHS = LinearSegmentedColormap.from_list("lengths", [PAPER, LENGTH])
OVER = LinearSegmentedColormap.from_list("over", [(*to_rgb("#e08214"), a) for a in (0.0, 0.75)])
# Cold: the same for every image. Warm: changes from image to image.
WARMTH = LinearSegmentedColormap.from_list("warmth", ["#27507a", "#8a6a8f", "#e08214"], 12)

# Dots an inch of a picture that is no SVG.
DPI = 150
# Inches: narrow enough that the text stays legible on a telephone.
WIDTH = 4.0

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "xtick.color": MUTED,
    "ytick.color": INK,
    "svg.hashsalt": "torchcaps",
    "svg.fonttype": "path",
    # Letters that journals can embed and readers can search for.
    "pdf.fonttype": 42,
    # Names of classes and files are text: a dollar sign is no formula.
    "text.parse_math": False,
}


# Around every function that draws.
styled = matplotlib.rc_context(STYLE)


def new_figure(height: float, width: float = WIDTH, **how: Any) -> Figure:
    """Make a figure, by default of the common width, without pyplot and its global state."""
    return Figure(figsize=(width, height), facecolor=PAPER, **how)


def say(where: Axes | Figure, x: float, y: float, text: str, **look: Any) -> None:
    """Write a small text whose middle is at this height, unless `look` says otherwise."""
    where.text(x, y, text, **{"fontsize": 7.5, "va": "center", **look})


def inner_axes(figure: Figure, left: float, foot: float, width: float, head: float) -> Axes:
    """Add axes: left edge and width as shares of the figure, foot and head in inches."""
    height = figure.get_figheight()
    return figure.add_axes((left, foot / height, width, 1 - (foot + head) / height))


def check_drawn(function: str, value: object, kind: type, what: str) -> None:
    """Refuse what is not of the kind that a function draws."""
    if not isinstance(value, kind):
        raise TorchcapsError(f"{function} draws {what}, but got {type(value).__name__}.")


def cut_to(text: str, width: float, size: float) -> str:
    """Cut a text set in `size` points with an ellipsis where it is wider than `width` points."""
    font = FontProperties(family=STYLE["font.family"], size=size)

    def is_wide(shown: str) -> bool:
        wide, *_ = text_to_path.get_text_width_height_descent(shown, font, False)
        return wide > width

    if not is_wide(text):
        return text
    while text and is_wide(f"{text}…"):
        text = text[:-1]
    return f"{text}…"


def show(axes: Axes, pixels: Tensor) -> Axes:
    """Draw an image [c, h, w], cut to [0, 1]: three channels are colours, others their mean."""
    pixels = pixels.detach().float().cpu().clamp(0, 1)
    shown = pixels.permute(1, 2, 0) if len(pixels) == 3 else pixels.mean(0)
    axes.imshow(shown.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    return axes


def to_svg(figure: Figure) -> str:
    """Write a figure as SVG; the same figure gives the same bytes, today and tomorrow.

    Arguments:
        figure: of any function here.

    >>> to_svg(draw_parse_tree(out.trace, images[0]))
    """
    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    # Labels are repeated in comments, where XML takes no control characters either.
    return printable(buffer.getvalue())


def check_figure_file(path: str | os.PathLike[str]) -> None:
    """Refuse a file that could not be drawn, before any work is done.

    Arguments:
        path: where a picture shall be written.

    >>> check_figure_file("tree.svg")
    """
    path = path_of("path", path)
    if path.suffix not in (".svg", ".pdf", ".png"):
        raise TorchcapsError(f"the picture must end in .svg, .pdf or .png, but is {path}.")
    if path.is_dir():
        raise TorchcapsError(f"{path} is a folder; name a file in it, as predictions.png.")
    if not path.parent.is_dir():
        raise TorchcapsError(f"the folder {path.parent} does not exist; make it, or name another.")


def write_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Replace a file by a picture in one step: .svg, .pdf or .png, the same bytes each time.

    Arguments:
        figure: of any function here.
        path: the file, ending in .svg, .pdf or .png.

    >>> write_figure(draw_parse_tree(out.trace, images[0]), "tree.svg")
    """
    path = path_of("path", path)
    check_figure_file(path)
    with beside(path) as partial:
        if path.suffix == ".svg":
            partial.write_text(to_svg(figure), encoding="utf-8")
        elif path.suffix == ".pdf":
            with matplotlib.rc_context(STYLE):
                figure.savefig(partial, format="pdf", metadata={"CreationDate": None})
        else:
            figure.savefig(partial, format="png", dpi=DPI)
        partial.replace(path)


def in_legend(label: str) -> str:
    """Return a label as a legend shows it, which leaves out those that begin with an underscore."""
    return f" {label}" if label.startswith("_") else label
