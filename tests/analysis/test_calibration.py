"""Reliability on paper, of perfect and of always wrong answers, and by loops."""

import pytest
import torch

from torchcaps.analysis import MeasureCalibration
from torchcaps.analysis.measure import Pixels
from torchcaps.types import Output


def measured(parts, **options):
    measurement = MeasureCalibration(**options)
    for probability, labels in parts:
        out = Output(torch.as_tensor(probability), "lengths")
        measurement.update(out, Pixels(torch.zeros(len(probability)), torch.as_tensor(labels)))
    return measurement


def test_on_paper():
    # Answers of 0.9, 0.9 and 0.6, of which the second is wrong.
    found = measured([([[0.9, 0.0], [0.9, 0.0], [0.0, 0.6]], [0, 1, 1])], bins=2).result()
    assert found.answers.cases == 3
    assert found.answers.counts.tolist() == [0, 3]
    assert found.answers.confidence.tolist() == pytest.approx([0, 0.8])
    assert found.answers.right.tolist() == pytest.approx([0, 2 / 3])
    assert found.answers.error == pytest.approx(0.8 - 2 / 3)
    # Three classes have 0, one of which is present; of the others two of three are.
    assert found.classes.counts.tolist() == [3, 3]
    assert found.classes.right.tolist() == pytest.approx([1 / 3, 2 / 3])
    assert found.classes.error == pytest.approx((1 / 3 + 0.8 - 2 / 3) / 2)


def test_extremes():
    sure = torch.eye(4)
    assert measured([(sure, [0, 1, 2, 3])]).result().answers.error == 0
    assert measured([(sure, [1, 2, 3, 0])]).result().answers.error == 1
    # An even split that is right once in four times.
    assert measured([(torch.full((4, 4), 0.25), [0, 1, 2, 3])]).result().answers.error == 0


def test_several_labels():
    found = measured([([[0.9, 0.8, 0.0]], [[0, 1]])], bins=1).result()
    assert found.answers.right.tolist() == [1]
    assert found.classes.right.tolist() == pytest.approx([2 / 3])


def test_loops_agree():
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(200, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (200,), generator=generator)
    whole = measured([(probability, labels)]).result()
    error = 0.0
    for bin in range(15):
        rows = [n for n in range(200) if bin <= float(probability[n].max()) * 15 < bin + 1]
        sure = sum(float(probability[n].max()) for n in rows)
        error += abs(sure - sum(int(probability[n].argmax() == labels[n]) for n in rows)) / 200
    assert whole.answers.error == pytest.approx(error, abs=1e-12)
    assert dict(whole.answers.sweep)[15] == whole.answers.error
