"""Pictures of what answers are worth, read back from the figures."""

import pytest
import torch
from matplotlib.collections import PathCollection
from sklearn.metrics import confusion_matrix

from torchcaps.analysis.saliency import carrying
from torchcaps.viz import to_svg
from torchcaps.viz.judged import draw_confusion, draw_curves, draw_reliability
from torchcaps.viz.parts import draw_along, draw_parts


def words(axes):
    return [each.get_text() for each in axes.texts]


def test_a_cell_has_its_count_and_its_share_of_the_class():
    labels, said = [0] * 8 + [1] * 200, [0] * 6 + [2] * 2 + [1] * 199 + [2]
    counts = torch.from_numpy(confusion_matrix(labels, said, labels=[0, 1, 2]))
    axes = draw_confusion(counts, ("a", "$b$\x1b", "absent")).axes[0]
    # A row a class; nothing was of the class that is absent.
    assert words(axes) == ["6\n75%", "2\n25%", "199\n100%", "1\n<1%"]
    assert [text.get_position() for text in axes.texts] == [(0, 0), (2, 0), (1, 1), (2, 1)]
    assert axes.images[0].get_array()[0].tolist() == [0.75**0.5, 0, 0.5]
    assert [each.get_text() for each in axes.get_yticklabels()] == ["a", r"$b$\x1b", "absent"]


def test_many_classes_have_no_counts_and_very_many_no_names():
    axes = draw_confusion(torch.eye(20), [f"class {k}" for k in range(20)]).axes[0]
    assert (words(axes), len(axes.get_xticks())) == ([], 20)
    axes = draw_confusion(torch.eye(100), [str(k) for k in range(100)]).axes[0]
    assert (words(axes), len(axes.get_xticks())) == ([], 0)


def test_a_point_a_bin_that_has_answers():
    sums = torch.tensor([[0, 2, 8], [0, 1, 7.2], [0, 1, 6]], dtype=torch.float64)
    above, below = draw_reliability({"as it is": sums, "scaled": sums}).axes
    (_, line, second) = above.lines
    assert [list(each) for each in line.get_data()] == [[0.5, 0.9], [0.5, 0.75]]
    assert below.patches[0].get_data().values.tolist() == [0, 0.2, 0.8]
    # Dashes and open marks, for a printer without colours.
    assert (line.get_linestyle(), second.get_linestyle()) == ("-", "--")
    assert line.get_markerfacecolor() != second.get_markerfacecolor()


def test_a_curve_lies_over_its_band_beside_that_of_a_network_that_knows_nothing():
    points = (torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.0, 0.9, 1.0]))
    band = (points[0], points[1] - 0.1, points[1])
    lines = [("cat (9)", "AUROC", points, band, (0, 1)), ("dog (2)", "", points, None, (0, 1))]
    first, second = draw_curves(lines, x="x", y="y").axes
    assert [list(each.get_ydata()) for each in first.lines] == [[0, 1], points[1].tolist()]
    assert (len(first.collections), len(second.collections)) == (1, 0)
    assert (first.get_title(loc="left"), words(first)) == ("cat (9)", ["AUROC"])


def test_the_fewest_positions_that_hold_half():
    grid = torch.tensor([[[1.0, 2.0], [3.0, 6.0]], [[1.0, 1.0], [1.0, 1.0]], [[0.0, 0], [0, 0]]])
    assert carrying(grid).int().tolist() == [
        [[0, 0], [0, 1]],
        [[1, 1], [0, 0]],
        [[0, 0], [0, 0]],
    ]
    assert carrying(grid, share=0.8)[0].int().tolist() == [[0, 1], [1, 1]]


def test_parts_are_outlined_on_the_image_above_their_saliency():
    images, maps = torch.rand(2, 3, 8, 8), torch.rand(2, 8, 8)
    marked = torch.tensor([[[True, False], [False, False]]] * 2)
    figure = draw_parts(images, maps, marked, ["cat\nanswer dog", "$x$"])
    above, _, below, _ = figure.axes
    assert above.get_title() == "cat\nanswer dog"
    # The marked quarter reaches to the middle of the image, 3.5 in its pixels.
    path = above.collections[-1].get_paths()[0].vertices
    assert path.max() == 3.5
    # All but that quarter is greyed.
    assert above.images[1].get_alpha().sum() == pytest.approx(0.6 * 48)
    assert not isinstance(above.collections[-1], PathCollection)
    assert torch.from_numpy(below.images[0].get_array().data).equal(maps[0])


def test_a_row_of_images_a_dimension_and_the_same_bytes_each_time():
    images = torch.rand(3, 4, 1, 5, 6, generator=torch.Generator().manual_seed(0))
    figures = [draw_along(images, ["0: a", "1: b", "2: c"], title="cat") for _ in range(2)]
    assert [axes.get_ylabel() for axes in figures[0].axes] == ["0: a", "1: b", "2: c"]
    assert figures[0].axes[1].images[0].get_array().shape == (5, 24)
    assert to_svg(figures[0]) == to_svg(figures[1])
