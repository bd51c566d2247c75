"""Semantic compactness on paper: one dimension, all alike, between, and nothing that varies."""

import math
from types import SimpleNamespace

import pytest
import torch

from torchcaps.analysis import MeasureCompactness, compactness, measure
from torchcaps.types import Capsules
from traces import even, network


def test_extremes():
    steps = torch.tensor([-1.0, 0, 1])
    one = torch.stack([steps, 0 * steps, 0 * steps, 0 * steps], -1)
    alike = torch.stack([steps] * 4, -1)
    found = compactness(torch.stack([one, alike]))
    assert found.tolist() == pytest.approx([math.log(4), 0], abs=1e-12)
    assert bool(compactness(torch.ones(1, 3, 4)).isnan().all())


def test_on_paper():
    # Variances 3 and 1 in two dimensions: 0.75 log 1.5 + 0.25 log 0.5.
    pose = torch.tensor([[[3.0**0.5, 1], [-(3.0**0.5), -1]]])
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert compactness(pose).item() == pytest.approx(expected, abs=1e-7)


def look(pixels):
    """A network of two classes: the pose of class 0 is the image, that of class 1 never varies."""
    pose = torch.stack([pixels, torch.ones_like(pixels)], 1)
    trace = network({"classes": even(len(pixels), 3, 2)})
    scores = torch.zeros(len(pixels), 2)
    return SimpleNamespace(scores=scores, trace=trace, classes=Capsules(pose))


def along(direction):
    return [lambda pixels, s=s: pixels + s * torch.tensor(direction) for s in (-1.0, 0.0, 2.0)]


FACTORS = {"first": along([1.0, 0, 0, 0]), "all": along([1.0, 1, 1, 1])}


def measured(labels):
    pixels = torch.rand(len(labels), 4, generator=torch.Generator().manual_seed(0)).double()
    batches = zip(pixels.split(4), torch.as_tensor(labels).split(4), strict=True)
    return measure(look, batches, [MeasureCompactness(look, FACTORS)])[0].factors


def test_factors_of_the_true_class():
    first, every = measured([0] * 9)
    assert (first.factor, first.images, first.constant) == ("first", 9, 0)
    assert first.score == pytest.approx(math.log(4), abs=1e-9)
    assert first.most == math.log(4)
    assert every.score == pytest.approx(0, abs=1e-9)


def test_a_pose_that_never_varies_is_counted():
    first, _ = measured([1, 0, 1])
    assert (first.images, first.constant) == (1, 2)
    first, _ = measured([1, 1])
    assert (first.score, first.images, first.constant) == (None, 0, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_pose_that_varies_by_rounding_alone_never_varies(dtype):
    """s · v / s is v but for rounding, whatever the brightness s; a small step of v is more."""

    def bright(pixels, step=0.0):
        s = pixels.to(dtype).sum(1, keepdim=True)
        v = torch.tensor([1.1, 2.3, 3.7, 4.9], dtype=dtype) * (1 + step)
        return SimpleNamespace(classes=Capsules(((s * v) / s).unsqueeze(1)))

    def stepping(pixels):
        far = (pixels.sum(1, keepdim=True) > 2).to(dtype)
        return bright(pixels, step=32 * torch.finfo(dtype).eps * far)

    changes = [lambda pixels, by=by: pixels * by for by in (0.7, 0.8, 0.9, 1.0, 1.1)]
    batch = SimpleNamespace(pixels=torch.rand(40, 4), labels=torch.zeros(40).long())
    batch.pixels = 2.4 * batch.pixels / batch.pixels.sum(1, keepdim=True)
    for look_at, constant in ((bright, 40), (stepping, 0)):
        measurement = MeasureCompactness(look_at, {"brightness": changes})
        measurement.update(None, batch)
        (found,) = measurement.result().factors
        assert (found.constant, found.images) == (constant, 40 - constant)
