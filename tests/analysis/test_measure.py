"""One pass: any kind of batch is taken, and no gradient is recorded."""

from types import SimpleNamespace

import pytest
import torch

from torchcaps.analysis import MeasureActivity, measure
from traces import even, network

IMAGES = 23
PIXELS = torch.arange(IMAGES).unsqueeze(-1)


def look_up(pixels):
    trace = network({"classes": even(len(pixels), 4, 3)})
    return SimpleNamespace(scores=torch.zeros(len(pixels), 3), trace=trace)


@pytest.mark.parametrize(
    "batch",
    [
        PIXELS,
        (PIXELS, torch.zeros(IMAGES).long()),
        [PIXELS, torch.zeros(IMAGES).long()],
        SimpleNamespace(pixels=PIXELS, labels=None),
    ],
    ids=["pixels", "tuple", "list", "object"],
)
def test_any_kind_of_batch(batch):
    seen = []
    (activity,) = measure(look_up, [batch], [MeasureActivity()], progress=seen.append)
    assert activity.images == seen[-1] == IMAGES


def test_no_gradient_is_recorded():
    weight = torch.ones(1, requires_grad=True)

    def scaled(pixels):
        out = look_up(pixels)
        out.scores = out.scores * weight
        assert not out.scores.requires_grad
        return out

    measure(scaled, [PIXELS], [MeasureActivity()])
