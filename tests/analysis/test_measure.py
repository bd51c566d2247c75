"""One pass: any split into batches gives the numbers of all images at once."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch.utils import _pytree

from torchcaps.analysis import (
    MeasureActivity,
    MeasureDynamics,
    capsule_activity,
    measure,
    routing_dynamics,
)
from traces import network

IMAGES = 23


def whole(seed=0):
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    couplings = {"hidden": rand(IMAGES, 5, 4).softmax(-1), "classes": rand(IMAGES, 4, 3)}
    lengths = {"primary": rand(IMAGES, 5), "hidden": rand(IMAGES, 4) * 0.1}
    return network(couplings, lengths)


WHOLE = whole()


def look_up(pixels):
    """A network whose images are their own numbers: pixels [b, 1] to rows of the whole trace."""
    rows = pixels[:, 0].long()
    trace = _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[rows], WHOLE)
    return SimpleNamespace(scores=torch.zeros(len(pixels), 3), trace=trace)


PIXELS = torch.arange(IMAGES).unsqueeze(-1)


def close(found, expected):
    """Whether two results agree to 1e-9 in every number."""
    leaves = [_pytree.tree_leaves(json.loads(each.to_json())) for each in (found, expected)]
    for ours, theirs in zip(*leaves, strict=True):
        assert ours == (pytest.approx(theirs, abs=1e-9) if isinstance(theirs, float) else theirs)


@pytest.mark.parametrize("size", [1, 2, 7, IMAGES])
def test_any_batch_size_gives_the_numbers_of_all_at_once(size):
    seen = []
    dynamics, activity = measure(
        look_up, PIXELS.split(size), [MeasureDynamics(), MeasureActivity()], progress=seen.append
    )
    close(dynamics, routing_dynamics(WHOLE))
    close(activity, capsule_activity(WHOLE))
    assert seen[-1] == IMAGES


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
    (activity,) = measure(look_up, [batch], [MeasureActivity()])
    assert activity.images == IMAGES


def test_no_gradient_is_recorded():
    weight = torch.ones(1, requires_grad=True)

    def scaled(pixels):
        out = look_up(pixels)
        out.scores = out.scores * weight
        assert not out.scores.requires_grad
        return out

    measure(scaled, [PIXELS], [MeasureActivity()])
