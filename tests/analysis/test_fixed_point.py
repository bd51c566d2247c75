"""The distance of successive iterations, on paper and of networks routed on and on."""

import pytest
import torch

from torchcaps import create_model
from torchcaps.analysis import MeasureFixedPoint
from torchcaps.types import Capsules, LayerTrace, Routed, Step
from traces import result_of


def trace_of(*poses):
    """One layer whose parents were `poses` [b, j, d], one after the other."""
    children = Capsules(torch.ones(len(poses[0]), 1, 1))
    steps = tuple(
        Step(children, torch.ones(len(pose), 1, pose.shape[1]), Capsules(pose)) for pose in poses
    )
    return (LayerTrace("classes", children, Routed(steps[-1].parents, steps)),)


def test_distances_on_paper():
    # Image 0: (3, 4) moves by (0, 1), 1/5; then stands. Image 1: (0, 2) turns to (2, 0), √8/2, then
    # to (1, 0), 1/2. Image 2 starts at zero and says nothing in the first step.
    first = torch.tensor([[[3.0, 4.0]], [[0.0, 2.0]], [[0.0, 0.0]]])
    second = torch.tensor([[[3.0, 5.0]], [[2.0, 0.0]], [[1.0, 0.0]]])
    third = torch.tensor([[[3.0, 5.0]], [[1.0, 0.0]], [[1.0, 3.0]]])
    whole = result_of(MeasureFixedPoint(), trace_of(first, second, third), torch.arange(3))
    one, two = whole.steps
    assert (one.name, one.iteration, two.iteration) == ("classes", 1, 2)
    assert one.median == pytest.approx((0.2 + 2**0.5) / 2)
    assert one.largest == pytest.approx(2**0.5)
    assert (two.median, two.largest) == pytest.approx((0.5, 3.0))


def test_inverted_attention_run_on_and_on():
    torch.manual_seed(0)
    options = {"image": (2, 13, 14), "n_classes": 3, "types": 4, "d_pose": 4}
    model = create_model("tsai_inverted_simple_c10", **options).eval()
    with torch.no_grad():
        images = torch.rand(4, 2, 13, 14)
        out = model(images, iterations=30, keep="steps")
    steps = result_of(MeasureFixedPoint(), out.trace, images).steps
    rows = {(row.name, row.iteration): row for row in steps}
    assert len(rows) == 3 * 29
    # Children of the lowest layer never change; its poses come to rest.
    assert rows["conv_1", 29].median < 0.1 * rows["conv_1", 1].median


def test_medians_are_of_a_sample_and_the_largest_is_of_all():
    start = torch.ones(30, 1, 2).double()
    moved = start * torch.linspace(2, 3, 30).double().view(30, 1, 1)
    measurement = MeasureFixedPoint(sample=5)
    measurement.add(trace_of(start, moved), torch.arange(30))
    (row,) = measurement.result().steps
    assert row.largest == pytest.approx(2)
    middle = result_of(MeasureFixedPoint(), trace_of(start, moved), torch.arange(30))
    assert middle.steps[0].median == pytest.approx(1.5)
    assert len(measurement._sample) == 5
