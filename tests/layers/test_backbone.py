"""Backbones: their sizes on paper, and the shape of features told without computing them."""

import re
import time

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from on_meta import size
from tables import beside
from torchcaps.errors import TorchcapsError
from torchcaps.layers import (
    CapsuleHead,
    efficient_backbone,
    feature_shape,
    sabour_backbone,
    with_channels_last,
)
from torchcaps.layers.backbone import (
    maps_after,
    residual_backbone,
    resnet_backbone,
    simple_backbone,
)
from torchcaps.layers.convolution import SmallConv2d
from torchcaps.layers.trunk import FrozenTrunk
from torchcaps.models import create_model
from torchcaps.models.deepcaps import WIDTH, _Cell, _stem

PAPER = beside(__file__, "backbones.toml")


def simple_256(channels):
    return simple_backbone(channels, 256, kernel=4, norm=True)


def pooled(channels):
    convolution = nn.Conv2d(channels, 6, (3, 2), (2, 1), (1, 0), (1, 2))
    return nn.Sequential(convolution, nn.LeakyReLU(), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2))


def without_arithmetic(channels):
    """Each of these is asked on the meta device."""
    same = (
        nn.Conv2d(channels, 6, 3, padding="same"),
        nn.Conv2d(6, 6, 3, 1, 2, padding_mode="reflect"),
    )
    halves = nn.Sequential(nn.Identity())
    halves.register_forward_hook(lambda module, given, out: out[..., ::2])
    return nn.Sequential(
        *same, nn.MaxPool2d(2, ceil_mode=True), nn.Upsample(scale_factor=3), halves
    )


BACKBONES = [
    sabour_backbone,
    efficient_backbone,
    simple_256,
    resnet_backbone,
    pooled,
    without_arithmetic,
    lambda channels: FrozenTrunk(channels, "resnet18"),
    lambda channels: FrozenTrunk(channels, "resnet18_imagenet"),
    lambda channels: nn.Sequential(_stem(channels), _Cell(WIDTH, 4)),
]


@pytest.mark.parametrize("image", [(1, 11, 17), (3, 12, 11), (2, 20, 23)])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_feature_shape_is_that_of_a_forward(backbone, image):
    module = backbone(image[0])
    real = module(torch.rand(2, *image))
    assert feature_shape(module, image) == tuple(real.shape[1:])
    assert (maps_after(module, image) is None) == (backbone is without_arithmetic)


def test_features_of_a_huge_image_cost_nothing():
    started = time.perf_counter()
    # The features would take ten terabytes.
    assert feature_shape(sabour_backbone(3), (3, 100_000, 100_008)) == (256, 99_992, 100_000)
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_feature_shape_is_that_of_images_in_the_dtype_of_the_weights(dtype):
    """Else a backbone in float64 was said to be no convolutions of a network for images."""
    module = efficient_backbone(1).to(dtype)
    assert feature_shape(module, (1, 28, 28)) == (128, 9, 9)
    assert CapsuleHead.after(module, image=(1, 28, 28), n_classes=3).grid == (9, 9, 8)


def test_feature_shape_leaves_running_statistics_alone():
    module = efficient_backbone(1)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    feature_shape(module, (1, 20, 20))
    assert all(torch.equal(before[name], each) for name, each in module.state_dict().items())


@pytest.mark.parametrize("call", PAPER)
def test_sizes_and_maps_on_paper(call):
    module, paper = eval(call, globals()), PAPER[call]
    if "size" in paper:
        assert size(module) == eval(paper["size"])
    if "maps" in paper:
        assert list(feature_shape(module, (3, 32, 32))) == paper["maps"]


@pytest.mark.parametrize(("n_classes", "printed"), [(10, 12_451_136), (100, 36_044_096)])
def test_size_of_dynamic_routing_on_a_resnet(n_classes, printed):
    backbone = resnet_backbone(3, width=256)
    primary = nn.Conv2d(256, 256, 9, stride=2, padding=4)
    maps = nn.Sequential(backbone, primary)
    assert feature_shape(maps, (3, 32, 32)) == (256, 8, 8)
    assert size(maps) + 8 * 8 * 32 * 8 * n_classes * 16 == printed


@pytest.mark.parametrize(
    ("parts", "kinds"),
    [
        (simple_backbone(3, 16, norm=True), [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]),
        (efficient_backbone(1), [SmallConv2d, nn.ReLU, nn.BatchNorm2d] * 4),
        # No ReLU after the second norm.
        (
            residual_backbone(1, (4, 1))[-1].residual,
            [SmallConv2d, nn.BatchNorm2d, nn.ReLU, SmallConv2d, nn.BatchNorm2d],
        ),
    ],
    ids=["simple", "efficient", "residual"],
)
def test_where_batch_normalisation_comes(parts, kinds):
    assert [type(each) for each in parts] == kinds


def test_a_residual_block_adds_what_came():
    *_, block = residual_backbone(1, (4, 1))
    features = torch.randn(2, 4, 5, 6)
    # With a last norm of nothing only the shortcut is left.
    nn.init.zeros_(block.residual[-1].weight)
    assert torch.equal(block(features), features.relu())


def test_a_shortcut_is_a_convolution_where_the_shape_changes():
    *_, same, wide = residual_backbone(1, (4, 1), (6, 1)).eval()
    assert len(same.shortcut) == 0
    features = torch.randn(2, 4, 5, 6)
    nn.init.zeros_(wide.residual[-1].weight)
    convolution = wide.shortcut[0]
    # Fresh running statistics are mean 0 and variance 1.
    expected = torch.nn.functional.conv2d(features[..., ::2, ::2], convolution.weight).relu()
    torch.testing.assert_close(wide.eval()(features), expected, rtol=1e-4, atol=1e-5)
    assert convolution.bias is None


@pytest.mark.parametrize(
    ("backbone", "image"),
    [(sabour_backbone(1), (1, 8, 28)), (efficient_backbone(1), (1, 28, 10))],
    ids=["sabour-small", "efficient-small"],
)
def test_images_that_do_not_pass(backbone, image):
    expected = (
        f"an image of (channels, height, width) = {image} does not pass through the convolutions ("
    )
    with pytest.raises(TorchcapsError, match=f"^{re.escape(expected)}(?i:.*kernel)"):
        feature_shape(backbone, image)


def test_channels_last_lies_elsewhere_and_is_the_same_network() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = create_model("deepcaps", image=(3, 16, 16)).double().eval()
        images = torch.rand(2, 3, 16, 16, dtype=torch.float64)
    expected = network(images).scores
    assert with_channels_last(network) is network
    for name, part in network.named_modules():
        if isinstance(part, nn.Conv2d):
            assert part.weight.is_contiguous(memory_format=torch.channels_last), name
            assert part(torch.rand(2, part.in_channels, 9, 9).double()).stride()[1] == 1
    assert_close(network(images).scores, expected, rtol=0, atol=1e-12)
