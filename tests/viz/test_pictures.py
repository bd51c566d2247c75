"""Pictures, read back from the figure: bars, crosses and lines are the numbers."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from torchcaps.analysis import Invariance, capsule_activity, routing_dynamics
from torchcaps.analysis.invariance import LayerInvariance
from torchcaps.viz import (
    draw_activity,
    draw_backtracked,
    draw_invariance,
    draw_mean_couplings,
    draw_parse_tree,
    to_svg,
)
from torchcaps.viz.layered import BAR, FADED, MOST_SHOWN
from torchcaps.viz.palette import DEAD, WARMTH
from traces import even, network, switching

PRIMARY = [[0.25, 0.75, 0.0], [0.5, 0.125, 0.0]]
CLASSES = [[0.9, 0.1], [0.2, 0.8]]
# The child in the middle leans most, to the second parent, in the second image.
COUPLING = [
    [[0.6, 0.4], [0.7, 0.3], [0.5, 0.5]],
    [[0.6, 0.4], [0.1, 0.9], [0.5, 0.5]],
]
TRACE = network({"classes": COUPLING}, {"primary": PRIMARY, "classes": CLASSES})
IMAGE = torch.rand(1, 6, 5, generator=torch.Generator().manual_seed(0))


# Layer norms and attention do not squash.
OVER_ONE = [[2.0, 0.5, 0.0], [3.0, 0.5, 0.0]]
UNSQUASHED = network({"classes": COUPLING}, {"primary": OVER_ONE, "classes": CLASSES})


def of_thousands():
    """Activity as of many primary capsules, without a mark for each."""
    found = capsule_activity(TRACE)
    lowest, *others = found.layers
    lowest = replace(lowest, n=10952, cas=10926.75, cds=0)
    return replace(found, layers=(lowest, *others))


def tree(index=1, **options):
    return draw_parse_tree(TRACE, IMAGE, index=index, **options)


def means(trace=TRACE):
    return draw_mean_couplings(routing_dynamics(trace), capsule_activity(trace))


def bars(figure):
    """Heights of the bars from the lowest row up; each stands before a full one in grey."""
    patches = [each for each in figure.axes[0].patches if isinstance(each, Rectangle)]
    assert {each.get_height() for each in patches[0::2]} == {BAR}
    return [each.get_height() for each in patches[1::2]]


def lines(figure):
    return [each for each in figure.axes[0].collections if isinstance(each, LineCollection)]


def marks(figure, marker):
    return [each for each in figure.axes[0].lines if each.get_marker() == marker]


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.mark.parametrize(
    "draw",
    [tree, means, lambda: draw_activity(capsule_activity(TRACE))],
    ids=["tree", "means", "activity"],
)
def test_the_same_numbers_give_the_same_bytes(draw):
    first, second = to_svg(draw()), to_svg(draw())
    assert first == second
    assert first.startswith("<?xml")


def test_bars_of_a_tree_are_lengths_of_the_image():
    assert bars(tree()) == pytest.approx([BAR * x for x in (0.5, 0.125, 0.0, 0.2, 0.8)])
    assert bars(tree(0)) == pytest.approx([BAR * x for x in (0.25, 0.75, 0.0, 0.9, 0.1)])


def test_lines_of_a_tree_are_couplings_of_the_image():
    (collection,) = lines(tree())
    assert len(collection.get_segments()) == 3 * 2
    alpha, width = collection.get_colors()[:, 3], collection.get_linewidths()
    # 0.4 and 0.1 are not the strongest of their child; the even halves both are, but their child
    # has no length.
    strength = sorted([0.6, FADED * 0.4, FADED * 0.1, 0.9, FADED * 0.5, FADED * 0.5])
    assert sorted(alpha) == pytest.approx([0.04 + 0.96 * c for c in strength])
    assert sorted(width) == pytest.approx([0.35 + 2.4 * c for c in strength])
    # Child 1 of 3 and parent 1 of 2, at the centres of their bars.
    darkest = collection.get_segments()[int(alpha.argmax())]
    assert darkest.tolist() == [pytest.approx([1.5 / 3, BAR]), pytest.approx([1.5 / 2, 1.0])]
    # Strong lines are drawn last.
    assert list(alpha) == sorted(alpha)


def test_a_line_to_the_strongest_parent_of_all_is_full_though_others_are_shown():
    """Two classes of 40 are not among the longest; the child's strongest parent is one of them."""
    weak, strong = 0.01, 0.02
    couplings, long = [strong] + [weak] * 39, [0.0] + [0.5] * 39
    trace = network({"classes": [[couplings]]}, {"primary": [[1.0]], "classes": [long]})
    (collection,) = lines(draw_parse_tree(trace, IMAGE))
    alpha = collection.get_colors()[:, 3]
    assert len(alpha) == MOST_SHOWN
    assert list(alpha) == pytest.approx([0.04 + 0.96 * FADED * weak] * MOST_SHOWN)


def test_a_tree_names_the_longest_class():
    figure = tree(class_names=("cat", "dog"))
    assert "longest class capsule: dog" in words(figure)
    assert [text for text in words(figure) if text in ("cat", "dog")] == ["cat", "dog"]


def test_a_tree_without_names_says_the_number_and_the_layer_of_the_longest():
    """Capsules of the last layer need not be classes."""
    assert "longest capsule in classes: 1" in words(tree())
    assert "longest capsule in classes: 0" in words(tree(0))


def test_a_tree_shows_its_image():
    (shown,) = tree().axes[1].images
    assert shown.get_array().shape == (6, 5)
    colour = draw_parse_tree(TRACE, torch.rand(3, 6, 5))
    assert colour.axes[1].images[0].get_array().shape == (6, 5, 3)


@pytest.mark.parametrize(
    "draw",
    [
        tree,
        means,
        lambda: draw_activity(capsule_activity(TRACE)),
        lambda: draw_activity(of_thousands()),
        lambda: tree(class_names=("golden_retriever", "a" * 200)),
    ],
    ids=["tree", "means", "activity", "many", "names"],
)
def test_no_word_is_cut_off_at_the_edge(draw):
    figure = draw()
    canvas = FigureCanvasAgg(figure)
    # The name of an axis has no place before.
    canvas.draw()
    paper = canvas.get_renderer()
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible():
            seen = text.get_window_extent(paper)
            assert seen.x0 >= 0, text
            assert seen.x1 <= figure.bbox.width, text
            assert seen.y0 >= 0, text
            assert seen.y1 <= figure.bbox.height, text


def test_an_image_of_two_channels_is_drawn_as_their_mean():
    image = torch.rand(2, 6, 5)
    (shown,) = draw_parse_tree(TRACE, image).axes[1].images
    mean = (image[0] + image[1]) / 2
    assert shown.get_array().flatten().tolist() == pytest.approx(mean.flatten().tolist())


def test_bars_of_means_are_mean_lengths_with_their_spread():
    figure = means()
    assert bars(figure) == pytest.approx([BAR * x for x in (0.375, 0.4375, 0.0, 0.55, 0.45)])
    # Means 0.375, 0.4375, 0, 0.55, 0.45; half the distance of two images is the deviation.
    spreads = [line.get_ydata() for line in marks(figure, "None")]
    low_high = [(0.25, 0.5), (0.125, 0.75), (0, 0), (0.2, 0.9), (0.1, 0.8)]
    for spread, (low, high), row in zip(spreads, low_high, (0, 0, 0, 1, 1), strict=True):
        assert list(spread) == pytest.approx([row + BAR * low, row + BAR * high])


def test_dead_capsules_are_crossed_out():
    (cross,) = marks(means(), "x")
    assert list(cross.get_xdata()) == pytest.approx([2.5 / 3])
    assert cross.get_color() == DEAD
    assert not marks(means(network({"classes": even(2, 3, 2)})), "x")


def test_lines_that_change_are_warm_and_others_cold():
    (collection,) = lines(means(network({"classes": switching(2, 2)})))
    assert {tuple(colour[:3]) for colour in collection.get_colors()} == {WARMTH(1.0)[:3]}
    (collection,) = lines(means(network({"classes": even(2, 3, 2)})))
    assert {tuple(colour[:3]) for colour in collection.get_colors()} == {WARMTH(0.0)[:3]}
    assert collection.get_colors()[:, 3] == pytest.approx([0.04 + 0.96 * 0.5] * 6)


def test_every_routed_layer_has_its_lines():
    figure = means(network({"hidden": even(2, 3, 4), "classes": even(2, 4, 2)}))
    assert [len(each.get_segments()) for each in lines(figure)] == [12, 8]
    names = ["primary", "hidden", "classes"]
    assert [text for text in words(figure) if text in names] == names


def test_activity_has_one_mark_a_capsule():
    figure = draw_activity(capsule_activity(TRACE))
    alive = [float(mark.get_xdata()[0]) for mark in marks(figure, "o")]
    # Shortest first in each layer.
    assert alive == pytest.approx([0.375, 0.4375, 0.45, 0.55])
    (cross,) = marks(figure, "x")
    assert list(cross.get_xdata()) == [0]
    # Half of it lies beside the axis.
    assert not cross.get_clip_on()
    assert words(figure) == ["2 of 3 active\n1 dead", "2 of 2 active\nnone dead"]


MANY = 40
ORDER = torch.randperm(MANY, generator=torch.Generator().manual_seed(3))
LONG = torch.linspace(0.1, 0.9, MANY)[ORDER].expand(2, MANY)
LARGE = network({"classes": even(2, MANY, 2)}, {"primary": LONG})


@pytest.mark.parametrize(
    "draw", [lambda: draw_parse_tree(LARGE, IMAGE), lambda: means(LARGE)], ids=["tree", "means"]
)
def test_of_a_large_layer_the_longest_are_shown(draw):
    figure = draw()
    border = LONG[0].sort(descending=True).values[MOST_SHOWN - 1]
    longest = [BAR * float(x) for x in LONG[0] if x >= border]
    assert bars(figure)[:MOST_SHOWN] == pytest.approx(longest)
    assert len(bars(figure)) == MOST_SHOWN + 2
    assert f"primary\n{MOST_SHOWN} of {MANY}" in words(figure)
    assert [len(each.get_segments()) for each in lines(figure)] == [MOST_SHOWN * 2]


def test_the_longest_of_many_classes_without_names():
    lengths = torch.full((2, MANY), 0.5)
    lengths[:, :5], lengths[:, 39] = 0.1, 0.9
    trace = network({"classes": even(2, 3, MANY)}, {"classes": lengths})
    assert "longest capsule in classes: 39" in words(draw_parse_tree(trace, IMAGE))


@pytest.mark.parametrize(
    "name", ["$x^{$", "$$", "a_b^c", "\\frac{", "\x1b[31m", "\x00", "<&>", "\ud800"]
)
def test_a_name_is_text(name):
    """Neither a formula, nor markup, nor a command to a terminal."""
    svg = to_svg(tree(class_names=[name, "dog"]))
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert svg.isprintable() or set(filter(lambda c: not c.isprintable(), svg)) == {"\n"}


def test_the_longest_of_capsules_longer_than_one_fills_its_bar():
    """They were cut at one, so that all of them looked alike, and their spread was drawn upside
    down."""
    figure = draw_parse_tree(UNSQUASHED, IMAGE, index=1)
    assert bars(figure) == pytest.approx([BAR * x / 3 for x in (3.0, 0.5, 0.0, 0.2, 0.8)])
    assert [text for text in words(figure) if "full is 3\n" in text]
    assert [text for text in words(tree()) if "full is 1\n" in text]


def test_means_and_spreads_of_capsules_longer_than_one_fit_into_their_bars():
    """Of 2 and 3 the mean is 2.5 and the deviation 0.5, so that a full bar is 3."""
    figure = means(UNSQUASHED)
    assert bars(figure) == pytest.approx([BAR * x / 3 for x in (2.5, 0.5, 0.0, 0.55, 0.45)])
    first, *_ = [line.get_ydata() for line in marks(figure, "None")]
    assert list(first) == pytest.approx([BAR * 2 / 3, BAR])
    assert "full bar:\nlength 3" in words(figure)
    assert "full bar:\nlength 1" in words(means())


def test_activity_of_capsules_longer_than_one_lies_on_its_axis():
    figure = draw_activity(capsule_activity(UNSQUASHED))
    (axes,) = figure.axes
    assert axes.get_xlim() == pytest.approx((0, 3))
    alive = [float(mark.get_xdata()[0]) for mark in marks(figure, "o")]
    assert alive == pytest.approx([0.5, 2.5, 0.45, 0.55])
    spreads = [list(line.get_xdata()) for line in marks(figure, "None")][1:]
    assert spreads[2] == pytest.approx([2.0, 3.0])
    paper = FigureCanvasAgg(figure).get_renderer()
    for text in axes.texts:
        assert text.get_window_extent(paper).x0 > axes.bbox.x1
    assert draw_activity(capsule_activity(TRACE)).axes[0].get_xlim() == (0, 1)


def test_the_colours_of_a_backtracked_tree_reach_to_the_longest_capsule():
    def ends(trace):
        return {
            each.get_clim()
            for each in draw_backtracked(trace, index=1).axes[0].collections
            if isinstance(each, PathCollection)
        }

    assert ends(UNSQUASHED) == {(0, 3)}
    assert ends(TRACE) == {(0, 1)}


def test_thousands_of_active_capsules_are_counted_whole():
    """It was 1.09e+04 of 10952."""
    lowest, classes = words(draw_activity(of_thousands()))
    assert lowest == "10927 of 10952 active\nnone dead"
    assert classes == "2 of 2 active\nnone dead"


def test_a_name_without_room_is_cut_with_a_sign():
    """It ran out of the picture, so that the cut name looked like a whole one."""
    names = ("golden_retriever", "cat")
    (cut, whole) = [text for text in words(tree(class_names=names)) if text in ("cat", "golden_r…")]
    assert (cut, whole) == ("golden_r…", "cat")
    assert "longest class capsule: golden_retriever" in words(tree(0, class_names=names))


@pytest.mark.parametrize(("least", "low"), [(0.006, -0.1), (-0.008, -0.1), (-0.5, -0.5)])
def test_turns_of_every_network_have_one_scale(least, low):
    """With all values above zero the axis was logarithmic, and looked like another world."""
    rows = [("rotation 10°", 0.9), ("rotation 90°", least)]
    layers = [LayerInvariance(turn, "classes", 0.9, value, 0, 0) for turn, value in rows]
    for axes, end in zip(draw_invariance(Invariance(8, (*layers,))).axes, (low, -0.1), strict=True):
        assert axes.get_yscale() == "linear"
        assert axes.get_ylim() == (pytest.approx(end), 1.05)
