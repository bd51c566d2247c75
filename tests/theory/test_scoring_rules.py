"""Two digits in an image, judged by two rules: what chance makes of the difference."""

import math

import pytest
import torch

from torchcaps.train.answers import is_correct
from torchcaps.types import Output

IMAGES, CLASSES = 20_000, 10


def normal(x):
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


# ∫ 8 φ(x) Φ(x)^7 Φ(2m - x)² dx, by the trapezoidal rule.
@pytest.mark.parametrize(("margin", "top"), [(1.0, 0.51488), (1.5, 0.83877), (2.5, 0.99707)])
def test_one_set_of_scores_has_two_accuracies(margin, top):
    """Ten independent detectors with logits N(±m, 1). A set is right where none of the ten errs,
    Φ(m)^10; the two highest are right where the lower of two exceeds the highest of eight."""
    draw = torch.Generator().manual_seed(0)
    first = torch.randint(CLASSES, (IMAGES,), generator=draw)
    second = (first + torch.randint(1, CLASSES, (IMAGES,), generator=draw)) % CLASSES
    labels = torch.stack([first, second], 1)
    there = torch.zeros(IMAGES, CLASSES).scatter(1, labels, 1)
    scores = torch.randn(IMAGES, CLASSES, generator=draw) + margin * (2 * there - 1)
    out = Output(scores, "independent_logits")
    by_set, by_top = (
        is_correct(out, labels, judged_by=rule).double().mean().item() for rule in ("set", "top")
    )
    for found, expected in ((by_set, normal(margin) ** CLASSES), (by_top, top)):
        error = math.sqrt(expected * (1 - expected) / IMAGES)
        assert found == pytest.approx(expected, abs=5 * error)
