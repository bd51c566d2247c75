"""Changes of drawings by hand: of a linear decoder, of the true class alone, in batches."""

from types import SimpleNamespace

import pytest
import torch

from torchcaps.analysis import MeasurePerturbation
from torchcaps.types import Capsules

# Two classes of two components; what each of the four adds to two pixels.
ADDS = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0], [1.0, 1.0]])


def all_units(classes, labels):
    return classes.pose.flatten(1)


def measured(labels, size=10, draw=lambda seen: seen @ ADDS, **options):
    measurement = MeasurePerturbation(all_units, draw, **options)
    generator = torch.Generator().manual_seed(0)
    pose = torch.randn(len(labels), 2, 2, generator=generator)
    for part in torch.arange(len(labels)).split(size):
        out = SimpleNamespace(classes=Capsules(pose[part]))
        measurement.update(out, SimpleNamespace(labels=labels[part]))
    return measurement.result()


def test_on_paper():
    first, second = measured(torch.tensor([0, 0])).amounts
    assert (first.amount, second.amount) == (0.2, 8.0)
    # sqrt((9 + 16) / 2) for the first component, nothing for the second.
    assert first.each.tolist() == pytest.approx([0.2 * 12.5**0.5, 0], abs=1e-6)
    assert first.change == pytest.approx(0.1 * 12.5**0.5, abs=1e-6)
    # A linear decoder draws forty times the change.
    assert second.change == pytest.approx(40 * first.change, rel=1e-5)


def test_the_true_class_moves():
    (row,) = measured(torch.tensor([1, 1, 1]), amounts=(1.0,)).amounts
    assert row.each.tolist() == pytest.approx([2**0.5, 1], abs=1e-6)
    (row,) = measured(torch.tensor([0, 1]), amounts=(1.0,)).amounts
    assert row.each.tolist() == pytest.approx([(12.5**0.5 + 2**0.5) / 2, 1 / 2], abs=1e-6)


def test_a_saturated_drawing_does_not_change_in_proportion():
    small, large = measured(torch.tensor([0, 1]), draw=lambda seen: (seen @ ADDS).sigmoid()).amounts
    assert 0 < small.change < large.change < 1
