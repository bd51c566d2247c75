"""Mean and deviation of channels, by hand and by numpy."""

import numpy as np
import pytest
import torch

from laid_images import noise
from torchcaps.data import ImageSet, channel_statistics


def test_by_hand():
    images = torch.tensor([0.0, 1.0, 0.5, 0.5]).view(2, 1, 1, 2)
    (mean,), (std,) = channel_statistics(ImageSet("m", images, torch.zeros(2).long(), ("a", "b")))
    assert (mean, std) == pytest.approx((0.5, 0.125**0.5))


def test_as_numpy_says():
    images = noise(250, channels=2, side=5)
    mean, std = channel_statistics(images)
    pixels = images.images.numpy().astype(np.float64) / 255
    np.testing.assert_allclose(mean, pixels.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(std, pixels.std((0, 2, 3)), rtol=1e-6)


def test_of_many_images_some_from_all_over_are_looked_at(monkeypatch):
    monkeypatch.setattr("torchcaps.data.shown.channels.MOST", 3)
    images = noise(101, channels=2, side=5)
    some = images.take(torch.tensor([0, 50, 100]))
    assert channel_statistics(images) == channel_statistics(some)
