"""What pictures refuse in a sentence: what is not what they draw."""

import pytest
import torch

from error_text import text_of
from torchcaps.viz import (
    draw_activity,
    draw_couplings_histogram,
    draw_keys,
    draw_levels,
    draw_pruning,
    draw_saliency,
    write_figure,
)
from torchcaps.viz.palette import new_figure

IMAGES, MAPS = torch.rand(2, 1, 4, 4), torch.rand(2, 4, 4)
OF_NETWORKS = (
    'draw_saliency draws maps by the names of their networks, {"mine": analysis.saliency(...)}, '
    "but got "
)
OF_RUNS = 'draw_pruning draws metrics by the names of their runs, {"mine": run.metrics()}, but got '


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda: draw_saliency(IMAGES, MAPS), f"{OF_NETWORKS}Tensor."),
        (lambda: draw_saliency(IMAGES, None), f"{OF_NETWORKS}NoneType."),
        (lambda: draw_saliency(IMAGES, {"mine": MAPS.numpy()}), f"{OF_NETWORKS}ndarray."),
        (
            lambda: draw_saliency({"mine": MAPS}, IMAGES),
            "images must be a tensor [k, c, h, w], but came as a dict.",
        ),
        (
            lambda: draw_saliency(IMAGES[0], {"mine": MAPS}),
            "images must be [k, c, h, w], but came with shape [1, 4, 4].",
        ),
        (lambda: draw_pruning([{"epoch": 1, "entropy": 2.0}]), f"{OF_RUNS}list."),
        (lambda: draw_pruning({"mine": object()}), f"{OF_RUNS}object."),
        (
            lambda: draw_levels(torch.rand(3, 3)),
            "draw_levels draws rows of (levels, accuracy, entropy), but got Tensor.",
        ),
        (
            lambda: draw_keys(MAPS),
            "draw_keys draws what analysis.MeasureKeys found, but got Tensor.",
        ),
        (
            lambda: draw_couplings_histogram(MAPS),
            "draw_couplings_histogram draws pairs of a name and what analysis.MeasureCouplings "
            "found, but got Tensor.",
        ),
        (
            lambda: draw_couplings_histogram(("mine", MAPS)),
            "draw_couplings_histogram draws pairs of a name and what analysis.MeasureCouplings "
            "found, but got Tensor.",
        ),
        (
            lambda: draw_activity(MAPS),
            "draw_activity draws what analysis.capsule_activity(trace) measured, but got Tensor.",
        ),
        (
            lambda: write_figure(new_figure(1.0), 3),
            "path must be a path, text or a pathlib.Path, but came as 3.",
        ),
    ],
)
def test_what_is_no_such_thing_is_refused(draw, said):
    assert text_of(draw) == said


def test_the_path_of_a_picture_may_be_text(tmp_path):
    write_figure(new_figure(1.0), f"{tmp_path}/tree.png")
    assert (tmp_path / "tree.png").is_file()
