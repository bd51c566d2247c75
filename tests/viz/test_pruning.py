"""Curves of pruning, of levels and maps of saliency, read back from the figures."""

import pytest
import torch

from torchcaps.viz import draw_levels, draw_pruning, draw_saliency


def rows(*entropies):
    return [
        {"epoch": k + 1, "sparsity": 0.1 * k, "validation_accuracy": 0.9, "entropy": each}
        for k, each in enumerate(entropies)
    ]


def test_a_line_a_run_of_everything_that_moves():
    figure = draw_pruning({"iterative": rows(3.0, 2.0, 1.0), "SNIP": rows(1.5, 1.0)})
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["sparsity", "validation accuracy", "entropy"]
    first, second = figure.axes[2].lines[:2]
    assert first.get_xydata().tolist() == [[1, 3], [2, 2], [3, 1]]
    assert second.get_xydata().tolist() == [[1, 1.5], [2, 1]]
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == ["iterative", "SNIP"]


def test_accuracy_and_entropy_by_sparsity():
    figure = draw_pruning({"mine": rows(3.0, 2.0, 1.0)}, against="sparsity")
    accuracy, entropy = figure.axes
    assert entropy.lines[0].get_xydata().tolist() == [[0, 3], [0.1, 2], [0.2, 1]]
    assert accuracy.lines[0].get_ydata().tolist() == [0.9, 0.9, 0.9]
    assert entropy.get_xlabel() == "sparsity"
    assert accuracy.get_title(loc="left") == "validation accuracy"


def test_levels_stand_in_their_order():
    above, below = draw_levels([(11, 0.95, 2.0), (3, 0.5, 0.25)]).axes
    assert below.lines[0].get_xydata().tolist() == [[3, 0.25], [11, 2]]
    assert above.lines[0].get_xydata().tolist() == [[3, 0.5], [11, 0.95]]
    assert [label.get_text() for label in below.get_xticklabels()] == ["3", "11"]


def test_a_map_lies_over_its_image():
    images, maps = torch.rand(2, 1, 4, 4), torch.rand(2, 4, 4)
    maps[1] = 0
    figure = draw_saliency(images, {"before": maps, "after": 2 * maps})
    assert [axes.get_title() for axes in figure.axes[:3]] == ["image", "before", "after"]
    plain, over = figure.axes[0], figure.axes[2]
    assert len(plain.images) == 1
    heat = torch.from_numpy(over.images[1].get_array().data)
    assert torch.allclose(heat, maps[0] / maps[0].max())
    assert float(figure.axes[5].images[1].get_array().max()) == 0


@pytest.mark.parametrize("name", ["_plain", "plain"])
def test_a_name_that_begins_with_an_underscore_is_in_the_legend(name):
    """Matplotlib leaves such labels out."""
    figure = draw_pruning({name: rows(2.0), "other": rows(2.0)})
    shown = [text.get_text().strip() for text in figure.legends[0].get_texts()]
    assert shown == [name, "other"]
