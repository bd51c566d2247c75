"""The test of learning rates, read back from its picture."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from torchcaps.viz import draw_rates

RATES, LOSSES, SMOOTHED = [1e-4, 1e-3, 1e-2], [2.0, 0.5, 3.0], [2.0, 1.25, 1.5]


def test_losses_are_dots_and_their_running_mean_is_a_line():
    (axes,) = draw_rates(RATES, LOSSES, SMOOTHED, suggested=1e-3).axes
    (dots,) = axes.collections
    assert dots.get_offsets().tolist() == [list(each) for each in zip(RATES, LOSSES, strict=True)]
    mean, mark = axes.lines
    assert (list(mean.get_xdata()), list(mean.get_ydata())) == (RATES, SMOOTHED)
    assert list(mark.get_xdata()) == [1e-3, 1e-3]
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "loss of a step",
        "running mean",
        "falls fastest: 0.001",
    ]


def test_without_a_suggestion_nothing_is_marked():
    (axes,) = draw_rates(RATES, LOSSES, SMOOTHED).axes
    assert len(axes.lines) == 1
    assert len(axes.get_legend().get_texts()) == 2


@pytest.mark.parametrize("rates", [RATES, [2e-3, 4e-3, 8e-3]], ids=["decades", "within one"])
def test_rates_are_numbers_and_no_formulas(rates):
    """The axis said $\\mathdefault{10^{-4}}$."""
    figure = draw_rates(rates, LOSSES, SMOOTHED)
    FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    assert not any("$" in text.get_text() for text in figure.findobj(Text))
    low, high = axes.get_xlim()
    seen = [
        tick.label1.get_text()
        for tick in (*axes.xaxis.get_major_ticks(), *axes.xaxis.get_minor_ticks())
        if low <= tick.get_loc() <= high and tick.label1.get_text()
    ]
    assert len(seen) >= 2
    assert all(low <= float(each.replace("\N{MINUS SIGN}", "-")) <= high for each in seen)
