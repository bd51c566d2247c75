"""Networks that route on, whose every step is known."""

import pytest
import torch

from torchcaps.data import part_whole
from torchcaps.models import create_model
from torchcaps.types import Capsules, LayerTrace, Output, Routed, Step
from torchcaps_claims.at_rest import STEPS, fixed_point_of


def halving(pixels, *, iterations, keep):
    """One class whose pose is (2, 0) at first, and then moves up by 1, 1/2, 1/4, …"""
    assert keep == "steps"
    b, up, steps = len(pixels), 0.0, []
    coupling = torch.ones(b, 1, 1)
    for t in range(iterations):
        pose = torch.tensor([2.0, up]).expand(b, 1, 2)
        steps.append(Step(Capsules(pose, None), coupling, Capsules(pose, None)))
        up += 0.5**t
    layer = LayerTrace("classes", steps[-1].parents, Routed(steps[-1].parents, tuple(steps)))
    return Output(torch.ones(b, 1), "logits", trace=(layer,))


def test_every_step_is_the_change_over_the_length_before():
    found = fixed_point_of(halving, part_whole("test", 10))
    assert [*found] == [*(f"fixed_point_distance.{t}" for t in STEPS), "fixed_point_distance"]
    # From (2, 0) to (2, 1), then to (2, 1.5): a half, and a half over the root of five.
    assert found["fixed_point_distance.1"] == pytest.approx(0.5)
    assert found["fixed_point_distance.2"] == pytest.approx(0.5 / 5**0.5)
    assert found["fixed_point_distance.3"] == pytest.approx(0.25 / 2.5)
    assert found["fixed_point_distance"] == found["fixed_point_distance.50"] < 1e-6


def test_the_classes_of_a_network_are_looked_at():
    torch.manual_seed(0)
    model = create_model(
        "tsai_inverted_simple_c10", image=(1, 32, 32), width=4, types=2, d_pose=4
    ).eval()
    images = part_whole("test", 2)
    found = fixed_point_of(model, images)
    pixels = images.batch(torch.arange(2)).pixels
    with torch.no_grad():
        two, three = (
            model(pixels, iterations=t, keep="steps").trace[-1].routed.parents.pose for t in (2, 3)
        )
    moved = (three - two).flatten(1).norm(dim=1) / two.flatten(1).norm(dim=1)
    assert found["fixed_point_distance.2"] == pytest.approx(float(moved.mean()), rel=1e-3)
