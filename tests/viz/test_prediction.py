"""The picture of predictions, read back from the figure."""

from itertools import pairwise

import pytest
import torch

from torchcaps.viz import Shown, draw_predictions

NAMES = ("cat", "dog", "a very long name")
GREY = torch.rand(1, 5, 4, generator=torch.Generator().manual_seed(0))
COLOURS = torch.rand(3, 5, 4, generator=torch.Generator().manual_seed(1))


def draw(*rows, names=NAMES):
    return draw_predictions(rows, names, measure="length")


def bars(axes):
    """Lengths of the bars from the top down; each stands before a full one."""
    widths = [patch.get_width() for patch in axes.patches]
    assert set(widths[0::2]) == {1}
    return widths[1::2]


def test_an_image_its_bars_and_its_reconstruction():
    figure = draw(Shown("x.png", COLOURS, torch.tensor([0.25, 0.75, 0.5]), GREY))
    image, drawn, axes = figure.axes
    assert torch.equal(torch.from_numpy(image.images[0].get_array().data), COLOURS.movedim(0, 2))
    assert torch.equal(torch.from_numpy(drawn.images[0].get_array().data), GREY[0])
    assert bars(axes) == pytest.approx([0.25, 0.75, 0.5])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["cat", "dog", "a very lo…"]
    (number,) = axes.texts
    assert (number.get_text(), number.get_position()[1]) == ("0.75", 1)
    assert axes.get_xlabel() == "length"
    assert [text.get_text() for text in figure.texts] == ["x.png"]
    # The bar that is said is darker, for those who cannot read the number.
    colours = [patch.get_facecolor()[:3] for patch in axes.patches[1::2]]
    assert sum(colours[1]) < sum(colours[0]) == sum(colours[2])


def test_without_a_reconstruction_bars_are_wider():
    with_one = draw(Shown("x", GREY, torch.rand(3), GREY)).axes[2]
    without = draw(Shown("x", GREY, torch.rand(3))).axes[1]
    assert without.get_position().width > 2 * with_one.get_position().width


def test_of_many_classes_the_highest_are_drawn_in_their_order():
    scores = torch.arange(20) % 7 / 10
    figure = draw(Shown("x", GREY, scores), names=[str(k) for k in range(20)])
    axes = figure.axes[1]
    names = [int(text.get_text()) for text in axes.get_yticklabels()]
    assert names == sorted(names)
    assert bars(axes) == pytest.approx(scores[names].tolist())
    assert min(bars(axes)) >= 0.3
    assert axes.get_xlabel() == "length, 10 highest of 20"


def test_the_winner_is_marked_where_others_are_as_high():
    """Probabilities of 16.7 and 20 are both one in float32; it is drawn though ten others are."""
    scores = torch.ones(12)
    axes = draw(Shown("x", GREY, scores, winner=11), names=[str(k) for k in range(12)]).axes[1]
    assert axes.get_yticklabels()[-1].get_text() == "11"
    (number,) = axes.texts
    assert number.get_position()[1] == 9
    colours = [sum(patch.get_facecolor()[:3]) for patch in axes.patches[1::2]]
    assert colours.index(min(colours)) == 9


def test_rows_lie_below_each_other_without_overlap():
    figure = draw(*[Shown(str(k), GREY, torch.rand(3), GREY) for k in range(4)])
    tops = [axes.get_position() for axes in figure.axes[::3]]
    assert all(low.y1 < high.y0 for high, low in pairwise(tops))
    assert all(box.y0 >= 0 and box.y1 <= 1 for box in tops)


def test_a_length_above_one_stays_in_its_bar():
    figure = draw(Shown("x", GREY * 3 - 1, torch.tensor([0.5, 7.0, 0.1])))
    assert bars(figure.axes[1]) == pytest.approx([0.5, 1.0, 0.1])
    assert figure.axes[1].texts[0].get_text() == "7.00"
