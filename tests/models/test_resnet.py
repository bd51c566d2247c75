"""ResNet-18: its size as printed, its maps, any image down to one pixel."""

import torch
from torch import nn

from on_meta import created
from torchcaps import create_model


def test_eighteen_layers_with_weights():
    model = created("resnet18")
    layers = [each for each in model.modules() if isinstance(each, nn.Conv2d | nn.Linear)]
    shortcuts = [
        each for each in layers if isinstance(each, nn.Conv2d) and each.kernel_size == (1, 1)
    ]
    assert len(layers) - len(shortcuts) == 18
    # One for each stage that changes the shape.
    assert [each.out_channels for each in shortcuts] == [128, 256, 512]


def test_maps_halve_three_times():
    maps = created("resnet18").features[0]
    features, found = torch.empty(2, 3, 32, 32, device="meta"), []
    for layer in maps:
        features = layer(features)
        found.append(tuple(features.shape[1:3]))
    stem = [(64, 32)] * 3  # convolution, norm, ReLU
    assert found == stem + [
        shape for shape in ((64, 32), (128, 16), (256, 8), (512, 4)) for _ in range(2)
    ]


def test_one_pixel():
    with torch.device("meta"):
        model = create_model("resnet18", image=(1, 1, 1), n_classes=1).eval()
        assert model(torch.empty(1, 1, 1, 1)).scores.shape == (1, 1)
