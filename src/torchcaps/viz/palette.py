"""Colours and fonts of every picture, and the way from a figure to SVG."""

import io
from typing import Any

import matplotlib
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from torchcaps._printable import printable

__all__ = [
    "DEAD",
    "INK",
    "LENGTH",
    "MUTED",
    "PAPER",
    "STYLE",
    "WARMTH",
    "WIDTH",
    "new_figure",
    "to_svg",
]

INK = "#1d2733"
MUTED = "#76818f"
PAPER = "#ffffff"
LENGTH = "#2f6f9f"
# Dead capsules also carry a cross: colour alone does not reach everyone.
DEAD = "#c23b22"
# Cold: the same for every image. Warm: changes from image to image.
WARMTH = LinearSegmentedColormap.from_list("warmth", ["#27507a", "#8a6a8f", "#e08214"])

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
    # Names of classes and files are text: a dollar sign is no formula.
    "text.parse_math": False,
}


def new_figure(height: float) -> Figure:
    """A figure of the common width, without pyplot and its global state."""
    return Figure(figsize=(WIDTH, height), facecolor=PAPER)


def to_svg(figure: Figure) -> str:
    """The same figure gives the same bytes, today and tomorrow."""
    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    # Labels are repeated in comments, where XML takes no control characters either.
    return printable(buffer.getvalue())
