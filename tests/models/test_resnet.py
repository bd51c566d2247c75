"""ResNet-18: its size as printed, its maps, any image down to one pixel."""

import pytest
import torch
from torch import nn

from torchcaps import create_model
from torchcaps.models import MODELS

NAMES = ["resnet18", "tsai_resnet18_c100"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # [tsai2020] Table 1: 11.17M, 11.22M
        ("resnet18", 11_173_962),
        ("tsai_resnet18_c100", 11_220_132),
    ],
)
def test_parameter_counts(name, expected):
    with torch.device("meta"):
        model = create_model(name)
    assert sum(p.numel() for p in model.parameters()) == expected


def test_eighteen_layers_with_weights():
    with torch.device("meta"):
        model = create_model("resnet18")
    layers = [each for each in model.modules() if isinstance(each, nn.Conv2d | nn.Linear)]
    shortcuts = [
        each for each in layers if isinstance(each, nn.Conv2d) and each.kernel_size == (1, 1)
    ]
    assert len(layers) - len(shortcuts) == 18
    # One for each stage that changes the shape.
    assert [each.out_channels for each in shortcuts] == [128, 256, 512]


def test_maps_halve_three_times():
    with torch.device("meta"):
        maps = create_model("resnet18").features[0]
    features, found = torch.empty(2, 3, 32, 32, device="meta"), []
    for layer in maps:
        features = layer(features)
        found.append(tuple(features.shape[1:3]))
    stem = [(64, 32)] * 3  # convolution, norm, ReLU
    assert found == stem + [
        shape for shape in ((64, 32), (128, 16), (256, 8), (512, 4)) for _ in range(2)
    ]


def test_presets_are_those_of_the_paper():
    assert [MODELS[name].image for name in NAMES] == [(3, 32, 32)] * 2
    assert [MODELS[name].n_classes for name in NAMES] == [10, 100]


def test_any_image_and_every_parameter_learns():
    model = create_model("resnet18", image=(2, 17, 23), n_classes=7)
    out = model(torch.rand(4, 2, 17, 23), torch.arange(4), keep="last")
    assert out.scores.shape == (4, 7)
    assert out.scores_are == "logits"
    assert (out.classes, out.reconstruction, out.trace) == (None, None, ())
    out.scores.square().sum().backward()
    starved = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert starved == []


def test_an_image_alone_is_the_image_in_a_batch():
    model = create_model("resnet18", image=(1, 9, 14), n_classes=2).eval()
    x = torch.rand(3, 1, 9, 14)
    batch = model(x).scores
    torch.testing.assert_close(model(x[1:2]).scores[0], batch[1], rtol=1e-4, atol=1e-5)


def test_one_pixel():
    with torch.device("meta"):
        model = create_model("resnet18", image=(1, 1, 1), n_classes=1).eval()
        assert model(torch.empty(1, 1, 1, 1)).scores.shape == (1, 1)
