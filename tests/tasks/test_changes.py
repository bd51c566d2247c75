"""Changed images on paper, and the same in any batch."""

import torch

from torchcaps.tasks.changes import noise, occlusion, robustness_changes, rotation, translation


def test_what_each_change_does():
    image = torch.zeros(1, 1, 3, 3)
    image[0, 0, 0, 1] = 1
    # Up becomes right, clockwise.
    torch.testing.assert_close(rotation(90)(image)[0, 0, 1, 2], torch.tensor(1.0))
    assert translation(1)(image)[0, 0, 0, 2] == 1
    assert translation(1)(image).sum() == 1
    white = torch.ones(1, 1, 10, 10)
    assert occlusion(0.25)(white).sum() == 75
    assert white.sum() == 100
    grey = torch.full((4, 1, 50, 50), 0.5)
    assert abs(float((noise(0.1)(grey) - grey)[0].std()) - 0.1) < 0.01


def test_a_change_is_the_same_in_any_batch():
    pixels = torch.rand(5, 1, 12, 12)
    for name, change in robustness_changes().items():
        alone = torch.cat([change(each) for each in pixels.split(1)])
        assert torch.equal(change(pixels), alone), name
        assert change(pixels).shape == pixels.shape
        assert 0 <= float(change(pixels).min()) <= float(change(pixels).max()) <= 1
