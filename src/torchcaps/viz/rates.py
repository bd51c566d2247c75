"""The loss over learning rates."""

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from torchcaps.viz.palette import DEAD, INK, LENGTH, STYLE


def draw_rates(
    rates: Sequence[float],
    losses: Sequence[float],
    smoothed: Sequence[float],
    *,
    suggested: float | None = None,
) -> Figure:
    """Draw the loss of each step as a dot, its running mean as a line, over the rates on a log
    scale.

    Arguments:
        rates: the learning rate of every step.
        losses: the loss before each of them.
        smoothed: the running mean of the losses.
        suggested: a rate to mark, if there is one.

    >>> draw_rates([1e-3, 1e-2], [2.0, 1.0], [2.0, 1.5], suggested=1e-2)
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6, 3.5), layout="constrained")
        axes = figure.add_subplot()
        axes.scatter(rates, losses, s=8, color=LENGTH, label="loss of a step")
        axes.plot(rates, smoothed, color=INK, label="running mean")
        if suggested is not None:
            axes.axvline(
                suggested, color=DEAD, linestyle="--", label=f"falls fastest: {suggested:.1g}"
            )
        axes.set(xscale="log", xlabel="learning rate", ylabel="loss")
        # Powers would be set as formulas, which no text of ours is.
        axes.xaxis.set_major_formatter(LogFormatter())
        axes.xaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False))
        axes.legend(frameon=False)
    return figure
