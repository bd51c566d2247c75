"""Robustness: counted on paper, in any batch size."""

from types import SimpleNamespace

import pytest
import torch

from error_text import text_of
from torchcaps.analysis import MeasureRobustness, measure
from torchcaps.types import Output

PIXELS = torch.eye(4).repeat(5, 1)[:, None, None]  # [20, 1, 1, 4]
LABELS = torch.arange(20) % 4


def network(pixels):
    return Output(pixels[:, 0, 0], "lengths")


CHANGES = {"none": lambda x: x, "shifted": lambda x: x.roll(1, -1), "dark": lambda x: x * 0}


@pytest.mark.parametrize("size", [1, 3, 20])
def test_right_answers_are_counted_for_each_change(size):
    batches = zip(PIXELS.split(size), LABELS.split(size), strict=True)
    (found,) = measure(network, batches, [MeasureRobustness(network, CHANGES)])
    assert [row.change for row in found.changes] == ["unchanged", "none", "shifted", "dark"]
    assert [row.accuracy for row in found.changes[:3]] == [1, 1, 0]
    # Where all scores are equal one class is named of all: right on its quarter.
    assert found.changes[3].accuracy == 0.25
    # Wilson's interval of 20 of 20, z² / (n + z²) below 1.
    assert found.changes[0].interval == pytest.approx((20 / (20 + 1.959964**2), 1))


def test_several_objects_share_an_image():
    labels = torch.stack([LABELS, (LABELS + 1) % 4], -1)
    seen = MeasureRobustness(network, {})
    seen.update(
        Output(PIXELS[:, 0, 0] + PIXELS[:, 0, 0].roll(1, -1), "lengths"),
        SimpleNamespace(pixels=PIXELS, labels=labels),
    )
    assert seen.result().changes[0].accuracy == 1


def test_what_was_refused_is_not_counted():
    seen = MeasureRobustness(lambda pixels: network(pixels.repeat(2, 1, 1, 1)), CHANGES)
    text_of(lambda: measure(network, [(PIXELS, LABELS)], [seen]))
    assert text_of(seen.result).startswith("there are no images to measure")
