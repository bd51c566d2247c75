"""Changed images on paper, and the same in any batch."""

import torch

from torchcaps.tasks.changes import (
    compactness_factors,
    invariance_changes,
    noise,
    occlusion,
    robustness_changes,
    rotation,
    scaling,
    shear,
    translation,
)


def test_what_each_change_does():
    image = torch.zeros(1, 1, 3, 3)
    image[0, 0, 0, 1] = 1
    # Up becomes right, clockwise.
    torch.testing.assert_close(rotation(90)(image)[0, 0, 1, 2], torch.tensor(1.0))
    assert translation(1)(image)[0, 0, 0, 2] == 1
    assert translation(1)(image).sum() == 1
    assert translation(1, along="y")(image)[0, 0, 1, 1] == 1
    # One pixel above the centre leans to the left by one, where the shear is 45°.
    torch.testing.assert_close(shear(45)(image)[0, 0, 0, 0], torch.tensor(1.0))
    torch.testing.assert_close(shear(45, along="y")(image), image)
    point = torch.zeros(1, 1, 5, 5)
    point[0, 0, 2, 3] = 1
    assert scaling(2.0)(point)[0, 0, 2, 4] == 1
    white = torch.ones(1, 1, 10, 10)
    assert occlusion(0.25)(white).sum() == 75
    assert white.sum() == 100
    grey = torch.full((4, 1, 50, 50), 0.5)
    assert abs(float((noise(0.1)(grey) - grey)[0].std()) - 0.1) < 0.01


def test_a_change_is_the_same_in_any_batch():
    pixels = torch.rand(5, 1, 12, 12)
    changes = {**robustness_changes(), **invariance_changes()}
    for factor, steps in compactness_factors().items():
        assert len(steps) == 9
        torch.testing.assert_close(steps[4](pixels), pixels, rtol=0, atol=1e-6)
        changes[f"{factor}, one end"], changes[f"{factor}, the other"] = steps[0], steps[-1]
    for name, change in changes.items():
        alone = torch.cat([change(each) for each in pixels.split(1)])
        assert torch.equal(change(pixels), alone), name
        assert change(pixels).shape == pixels.shape
        assert -1e-6 <= float(change(pixels).min()) <= float(change(pixels).max()) <= 1 + 1e-6
