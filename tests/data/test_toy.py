"""The toy set: three clouds in the unit square, told apart by the nearest centre."""

import pytest
import torch

from torchcaps.data import load, toy_2d
from torchcaps.models import create_model


def test_three_clouds_lie_on_a_triangle():
    images = load("toy-2d")
    assert (len(images), images.image_shape, images.class_names) == (
        10_000,
        (2, 1, 1),
        tuple("012"),
    )
    points = images.images.flatten(1)
    clouds = [points[images.labels == k] for k in range(3)]
    expected = torch.tensor([[0.75, 0.5], [0.375, 0.716506], [0.375, 0.283494]])
    for cloud, centre in zip(clouds, expected, strict=True):
        # Standard deviation of a mean: 0.07 / sqrt(3333) = 0.0012.
        torch.testing.assert_close(cloud.mean(0), centre, rtol=0, atol=0.005)
        torch.testing.assert_close(cloud.std(0), torch.full((2,), 0.07), rtol=0, atol=0.004)
    nearest = torch.cdist(points, expected).argmin(1)
    # The centres lie 0.433 apart: a point crosses to another with probability about 0.002.
    assert 0.99 < float((nearest == images.labels).float().mean()) < 1


def test_points_are_those_of_the_seed_and_tests_are_others():
    train, test = toy_2d("train", 300), toy_2d("test", 300)
    assert torch.equal(train.images, load("toy-2d").images[:300])
    assert not (train.images == test.images).any()
    assert not torch.equal(train.images, toy_2d("train", 300, seed=1).images)
    assert len(load("toy-2d", split="test")) == 2_000


@pytest.mark.parametrize("name", ["gu_convnet_cr", "gu_convnet_cr_sf", "gu_convnet_r"])
def test_the_networks_of_the_figure_take_points_by_kernels_of_one(name):
    images = toy_2d("test", 6)
    model = create_model(name, image=images.image_shape, n_classes=3, kernel=1).eval()
    out = model(images.batch(slice(None)).pixels)
    assert out.scores.shape == (6, 3)
    assert out.classes.pose.shape == (6, 3, 16)
    assert out.reconstruction.shape[-3:] == (2, 1, 1)
