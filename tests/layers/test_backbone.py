"""Backbones: their sizes on paper, and the shape of features told without computing them."""

import re
import time

import pytest
import torch
from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers import efficient_backbone, feature_shape, sabour_backbone

BACKBONES = [sabour_backbone, efficient_backbone]


def size(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("image", [(1, 11, 17), (3, 12, 11), (2, 20, 23)])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_feature_shape_is_that_of_a_forward(backbone, image):
    module = backbone(image[0])
    real = module(torch.rand(2, *image))
    assert feature_shape(module, image) == tuple(real.shape[1:])


def test_features_of_a_huge_image_cost_nothing():
    started = time.perf_counter()
    # The features would take ten terabytes.
    assert feature_shape(sabour_backbone(3), (3, 100_000, 100_008)) == (256, 99_992, 100_000)
    assert time.perf_counter() - started < 1


def test_feature_shape_leaves_running_statistics_alone():
    module = efficient_backbone(1)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    feature_shape(module, (1, 20, 20))
    assert all(torch.equal(before[name], each) for name, each in module.state_dict().items())


def test_sizes_on_paper():
    assert size(sabour_backbone(3)) == 3 * 81 * 256 + 256
    convolutions = (25 * 32 + 32) + (32 * 9 * 64 + 64) + (64 * 9 * 64 + 64) + (64 * 9 * 128 + 128)
    normalisations = 2 * (32 + 64 + 64 + 128)
    assert size(efficient_backbone(1)) == convolutions + normalisations


def test_batch_normalisation_comes_after_the_relu():
    kinds = [type(block) for block in efficient_backbone(1)]
    assert kinds == [nn.Conv2d, nn.ReLU, nn.BatchNorm2d] * 4


@pytest.mark.parametrize(
    ("backbone", "image", "why"),
    [
        (sabour_backbone(1), (1, 8, 28), "kernel"),
        (efficient_backbone(1), (1, 28, 10), "kernel"),
        (sabour_backbone(3), (1, 28, 28), "channel"),
    ],
    ids=["sabour-small", "efficient-small", "channels"],
)
def test_images_that_do_not_pass(backbone, image, why):
    expected = (
        f"an image of (channels, height, width) = {image} does not pass through the convolutions ("
    )
    with pytest.raises(TorchcapsError, match=f"^{re.escape(expected)}(?i:.*{why})"):
        feature_shape(backbone, image)
