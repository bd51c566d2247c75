"""Trees of a class, couplings and the tree of an answer, read back from the figures."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from torchcaps.analysis import MeasureCouplings, MeasureKeys, mean_trace
from torchcaps.types import Output
from torchcaps.viz import draw_backtracked, draw_couplings_histogram, draw_keys, to_svg
from traces import network, result_of, switching

OF_TWO = network({"classes": switching(2, 2)}), torch.tensor([0, 1])


def test_a_bar_is_an_entropy_before_its_bound():
    trace = network({"classes": switching(2, 2)})
    found = result_of(MeasureKeys(sweep=()), trace, torch.tensor([0, 0]))
    axes = draw_keys(found, class_names=("one", "two")).axes[0]
    # Two images, two trees: one bit of one; the second class has none.
    bounds, entropies = ([bar.get_width() for bar in bars] for bars in axes.containers)
    assert (bounds, entropies) == ([1.0, 0.0], [1.0, 0.0])
    assert [text.get_text() for text in axes.texts] == [
        "2 trees of 2 images",
        "0 trees of 0 images",
    ]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["two", "one"]


def test_a_histogram_has_the_shares_of_its_couplings():
    trace = network({"hidden": switching(2, 4), "classes": switching(2, 2, n_in=4)})
    found = result_of(MeasureCouplings(bins=4), trace, torch.tensor([0, 1]))
    figure = draw_couplings_histogram(("mine", found), ("yours", found))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["classes", "hidden"]
    for axes, layer in zip(figure.axes, reversed(found.layers), strict=True):
        assert len(axes.patches) == 2
        drawn = axes.patches[0].get_data().values
        assert np.allclose(drawn, layer.counts.double() / layer.counts.sum())
        assert "$" not in "".join(label.get_text() for label in axes.get_yticklabels())


def test_a_histogram_shows_every_network_in_lines_of_its_own():
    found = result_of(MeasureCouplings(bins=4), *OF_TWO)
    names = [f"network {k}" for k in range(9)]
    figure = draw_couplings_histogram(*((name, found) for name in names))
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == names
    assert len({(line.get_edgecolor(), line.get_linestyle()) for line in axes.patches}) == 9
    # In grey some colours are one.
    assert len({line.get_linestyle() for line in axes.patches[:4]}) == 4


def test_bars_of_several_networks_are_told_apart_in_grey():
    figure = draw_keys({str(k): result_of(MeasureKeys(sweep=()), *OF_TWO) for k in range(5)})
    drawn = [bars[0].get_hatch() for bars in figure.axes[0].containers[1::2]]
    assert len({*drawn}) == 5
    assert [bar.get_hatch() for bar in figure.legends[0].get_patches()] == drawn


def test_a_graph_shows_the_capsules_of_the_tree_alone():
    hidden = torch.tensor([[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]])
    classes = torch.tensor([[[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]])
    trace = network({"hidden": hidden, "classes": classes}, {"classes": [[0.2, 0.3, 0.9]]})
    axes = draw_backtracked(trace, class_names="abc").axes[0]
    points = [each for each in axes.collections if hasattr(each, "get_offsets")]
    counts = [len(each.get_offsets()) for each in points if len(each.get_offsets()) > 0]
    assert [count for count in counts if count][-3:] == [2, 1, 1]
    words = [text.get_text() for text in axes.texts]
    assert words == ["primary\n2 of 3", "hidden\n1 of 2", "classes\n1 of 3", "c"]


def test_a_name_without_room_is_cut_with_a_sign():
    """It ran out of the picture at its beginning, where retrievers are told apart."""
    keys = result_of(MeasureKeys(sweep=()), *OF_TWO)
    figure = draw_keys(keys, class_names=("golden_retriever", "cat"))
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == ["cat", "golden_retr…"]
    paper = FigureCanvasAgg(figure).get_renderer()
    assert all(label.get_window_extent(paper).x0 >= 0 for label in labels)


def test_the_trees_of_ten_thousand_images_are_told_in_full():
    """From a thousand images on, the end of the words ran out of the picture."""
    found = result_of(MeasureKeys(sweep=()), *OF_TWO)
    many = tuple(replace(row, keys=10_000, images=10_000) for row in found.classes)
    figure = draw_keys(replace(found, classes=many), class_names=("golden_retriever", "cat"))
    paper = FigureCanvasAgg(figure).get_renderer()
    ends = [text.get_window_extent(paper).x1 for text in figure.axes[0].texts]
    assert max(ends) <= figure.bbox.x1


def test_the_graph_of_a_mean_over_one_image_is_its_graph():
    hidden = torch.tensor([[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]] * 2)
    classes = torch.tensor([[[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]], [[0.4, 0.2, 0.4], [0.1, 0.7, 0.2]]])
    scores = torch.tensor([[0.2, 0.3, 0.9], [0.1, 0.8, 0.7]])
    trace = network({"hidden": hidden, "classes": classes}, {"classes": scores})
    mean = mean_trace(Output(scores, "lengths", trace=trace), classes=[1, 2])
    for place, index in enumerate((1, 0)):
        drawn = draw_backtracked(mean, index=place, class_names="abc")
        assert to_svg(drawn) == to_svg(draw_backtracked(trace, index=index, class_names="abc"))


def test_a_graph_of_several_classes_names_each_above_its_capsule():
    coupling = torch.tensor([[[0.6, 0.2, 0.2], [0.2, 0.2, 0.6], [0.3, 0.4, 0.3]]])
    trace = network({"classes": coupling}, {"classes": [[0.2, 0.3, 0.9]]})
    figure = draw_backtracked(trace, predicted=[2, 0], class_names=("a", "b", "w" * 60))
    (axes,) = figure.axes
    *labels, first, second = axes.texts
    assert [text.get_text() for text in labels] == ["primary\n2 of 3", "classes\n2 of 3"]
    assert (first.get_text(), first.get_position()[0]) == ("a", 0.25)
    assert second.get_text().startswith("www")
    assert second.get_text().endswith("…")
    paper = FigureCanvasAgg(figure).get_renderer()
    assert second.get_window_extent(paper).y1 <= figure.bbox.y1
    # Child 0 leads to class 0, child 1 to class 2, and neither line crosses the other.
    (lines,) = [each for each in axes.collections if hasattr(each, "get_segments")]
    assert [line.tolist() for line in lines.get_segments()] == [
        [[0.25, 0], [0.25, 1]],
        [[0.75, 0], [0.75, 1]],
    ]


def test_of_more_classes_than_fit_the_longest_are_shown():
    many = torch.rand(1, 4, 40, generator=torch.Generator().manual_seed(0))
    trace = network({"classes": many / many.sum(-1, keepdim=True)}, {"classes": [[*range(40)]]})
    figure = draw_backtracked(trace, predicted=range(40))
    _, label, *names = figure.axes[0].texts
    assert label.get_text() == "classes\n40 of 40\n32 shown"
    assert [name.get_text() for name in names] == [str(k) for k in range(8, 40)]
    paper = FigureCanvasAgg(figure).get_renderer()
    ends = [name.get_window_extent(paper) for name in names]
    assert all(left.x1 <= right.x0 for left, right in pairwise(ends))


def test_a_histogram_of_each_class_on_paper():
    coupling = torch.tensor([[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]] * 3)
    trace = network({"classes": coupling})
    found = result_of(MeasureCouplings(bins=2), trace, torch.tensor([0, 0, 1]))
    figure = draw_couplings_histogram(("mine", found), classes=(0, 1))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["class 0", "class 1"]
    drawn = [axes.patches[0].get_data().values for axes in figure.axes]
    # Towards class 0 the couplings 0.9, 0.6 and 0.2 of two images, towards 1 the rest of the third.
    assert np.allclose(drawn, [[1 / 3, 2 / 3], [2 / 3, 1 / 3]])
