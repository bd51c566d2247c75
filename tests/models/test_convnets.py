"""ConvNets: their sizes as printed and on paper, any image, and how units become scores."""

import re
from functools import cache

import pytest
import torch
from torch import nn

from on_meta import count, created
from torchcaps import create_model
from torchcaps.errors import TorchcapsError
from torchcaps.layers.convolution import LargeConv2d
from torchcaps.ops import squash

# The smallest side of a square image that passes.
SMALLEST = {
    "convnet_fc": 13,
    "convnet_avg": 17,
    "gu_convnet_fc_lk": 25,
    "gu_convnet_cr": 17,
    "gu_convnet_r": 17,
    "gu_convnet_cr_sf": 17,
    "tsai_cnn_c10": 5,
    "tsai_dmm_cnn": 13,
    "tsai_dmm_cnn_fcpool": 13,
}
IMAGE, CLASSES = (3, 17, 23), 7


def made(name, image=IMAGE, n_classes=CLASSES, **options):
    if name == "gu_convnet_fc_lk":
        options = {"kernel": 5, **options}  # 17 pixels are too few for three 9×9 convolutions
    return create_model(name, image=image, n_classes=n_classes, **options)


@cache
def shared(name):
    """A network in evaluation mode, for tests that change nothing in it."""
    torch.manual_seed(3)
    return made(name).eval()


def images(count=3, image=IMAGE):
    return torch.rand(count, *image, generator=torch.Generator().manual_seed(5))


def linear_widths(model):
    return [each.out_features for each in model.modules() if isinstance(each, nn.Linear)]


# The trunk of CapsNet, and its decoder from n values to 28×28 pixels.
TRUNK = (81 * 256 + 256) + (256 * 81 * 256 + 256)


@pytest.mark.parametrize(
    ("kernel", "capsnet"),
    [
        (3, 16_111_424),
        (5, 14_378_816),
        (7, 13_500_224),
        (9, 13_475_648),
        (11, 14_305_088),
    ],
)
def test_large_kernels_cost_what_capsnet_costs(kernel, capsnet):
    found = count("gu_convnet_fc_lk", image=(1, 40, 40), kernel=kernel)
    assert 0.99 * capsnet < found <= capsnet


def test_a_narrow_network_of_three_convolutions():
    model = created("convnet_fc", image=(1, 40, 40), width=64)
    widths = [m.out_channels for m in model.modules() if isinstance(m, torch.nn.Conv2d)]
    assert widths == [64, 64, 32]
    # As large as CapsNet that is as narrow.
    capsnet = count("capsnet", image=(1, 40, 40), width=64)
    found = count("gu_convnet_fc_lk", image=(1, 40, 40), width=64)
    assert 0.99 * capsnet < found <= capsnet


def test_units_of_large_kernels_fill_the_size_of_capsnet():
    budget = count("capsnet", image=(1, 36, 36))
    model = created("gu_convnet_fc_lk")
    same = created("gu_convnet_fc_lk", reconstruction=True)
    assert linear_widths(model) == [182, 107, 10]
    # convolutions | 12·12·128 features
    units = (18_432 * 182 + 182) + (182 * 107 + 107) + (107 * 10 + 10)
    assert count("gu_convnet_fc_lk") == TRUNK + (256 * 81 * 128 + 128) + units
    # One unit more, of as many weights as there are features, is too much.
    assert count("gu_convnet_fc_lk") <= budget < count("gu_convnet_fc_lk") + 18_432
    # The decoder comes on top: with and without it the classifier is the same.
    assert linear_widths(same)[:3] == [182, 107, 10]


def test_units_of_large_kernels_never_vanish():
    model = created("gu_convnet_fc_lk", image=(1, 25, 25))
    assert linear_widths(model) == [41, 24, 10]


def sides(layers, image):
    """(channels, height, width) after every layer that changes them."""
    features, found = torch.empty(2, *image, device="meta"), []
    for layer in layers:
        features = layer(features)
        shape = tuple(features.shape[1:])
        if not found or shape != found[-1]:
            found.append(shape)
    return found


def layers_of(module):
    kept = (nn.Conv2d, nn.ReLU, nn.BatchNorm2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.Flatten)
    return [each for each in module.modules() if isinstance(each, kept)]


def test_maps_of_the_tables():
    with torch.device("meta"):
        cifar, dmm = create_model("tsai_cnn_c10"), create_model("tsai_dmm_cnn")
    assert sides(layers_of(cifar.features), (3, 32, 32)) == [
        *((1024, side, side) for side in (16, 8, 4, 2, 1)),
        (1024,),
    ]
    assert sides(layers_of(dmm.features), (1, 36, 36)) == [
        *((1024, side, side) for side in (18, 8, 6)),
        (640, 6, 6),
        (640, 1, 1),
        (640,),
    ]


def test_normalisation_comes_after_the_relu_but_not_after_the_first():
    dmm = created("tsai_dmm_cnn_fcpool")
    kinds = [type(each) for each in layers_of(dmm.features)]
    plain, normed = [nn.Conv2d, nn.ReLU], [nn.Conv2d, nn.ReLU, nn.BatchNorm2d]
    assert kinds == [*plain, *normed, *normed, nn.Flatten]


def test_every_layer_of_convnet_fc_but_the_last_has_a_relu():
    kinds = [
        type(each).__name__
        for each in shared("convnet_fc").modules()
        if isinstance(each, LargeConv2d | nn.ReLU | nn.Linear)
    ]
    assert kinds == [*["LargeConv2d", "ReLU"] * 3, *["Linear", "ReLU"] * 2, "Linear"]


def test_both_convolutions_of_convnet_avg_have_a_relu():
    features = shared("convnet_avg").features(images())
    assert features.shape == (3, 256)
    assert features.min() >= 0


@pytest.mark.parametrize(("name", "side"), SMALLEST.items())
def test_the_smallest_image(name, side):
    with torch.device("meta"):
        model = create_model(name, image=(2, side, side + 1), n_classes=2)
        assert model(torch.empty(2, 2, side, side + 1)).scores.shape == (2, 2)
        for image in ((2, side - 1, 60), (2, 60, side - 1)):
            expected = (
                f"an image of (channels, height, width) = {image} does not pass through the "
                "convolutions ("
            )
            with pytest.raises(TorchcapsError, match=f"^{re.escape(expected)}.*use a larger image"):
                create_model(name, image=image, n_classes=2)


@pytest.mark.parametrize("name", ["convnet_fc", "gu_convnet_fc_lk"])
def test_margin_turns_scores_into_lengths(name):
    torch.manual_seed(1)
    plain = made(name).eval()
    torch.manual_seed(1)
    margin = made(name, margin=True).eval()
    out = margin(images())
    assert out.scores_are == "lengths"
    assert out.scores.min() > 0
    assert out.scores.max() < 1
    assert torch.equal(out.scores, plain(images()).scores.sigmoid())
    assert torch.equal(out.probabilities(), out.scores)


@pytest.mark.parametrize("margin", [False, True])
@pytest.mark.parametrize("name", ["convnet_fc", "gu_convnet_fc_lk"])
def test_reconstruction_sees_the_last_hidden_layer(name, margin):
    model, x = made(name, reconstruction=True, margin=margin).eval(), images()
    out = model(x)
    assert out.reconstruction.shape == x.shape
    hidden = model.features(x)
    assert hidden.shape == (3, linear_widths(model)[1])
    assert torch.equal(out.reconstruction.flatten(1), model.decoder.layers(hidden))
    assert linear_widths(model.decoder) == [512, 1024, 3 * 17 * 23]


def test_convnet_r_scores_and_draws_from_all_units():
    model, x = shared("gu_convnet_r"), images()
    units = model.features(x)
    assert units.shape == (3, CLASSES * 16)
    assert units.min() < 0  # no ReLU
    out = model(x)
    torch.testing.assert_close(out.scores, units @ model.head.weight.T + model.head.bias)
    assert out.classes.pose.shape == (3, CLASSES, 16)
    assert torch.equal(out.classes.pose.flatten(1), units)
    assert out.classes.activation is None
    assert torch.equal(out.reconstruction.flatten(1), model.decoder.layers(units))


class Fixed(nn.Module):
    """Units that do not look at the image: class 0 is long but unlikely, class 1 likely."""

    def __init__(self):
        super().__init__()
        self.values = nn.Parameter(
            torch.cat([torch.full((16,), -3.0), torch.full((16,), 0.5), torch.zeros(16)])
        )

    def forward(self, image):
        return self.values.expand(len(image), -1)


def fixed():
    model = create_model("gu_convnet_cr", image=(1, 17, 17), n_classes=3).eval()
    model.units = Fixed()
    return model, images(2, (1, 17, 17))


def test_a_logit_of_convnet_cr_is_the_sum_of_its_16_units():
    model, x = fixed()
    out = model(x)
    assert out.scores.tolist() == [[-48.0, 8.0, 0.0]] * 2
    # Table 5 looks at the vectors; a class does not score by its length.
    assert out.classes.pose.tolist() == [[[-3.0] * 16, [0.5] * 16, [0.0] * 16]] * 2
    assert out.classes.activation is None
    assert out.probabilities()[:, 2].tolist() == [0.5, 0.5]


def test_convnet_cr_draws_the_target_or_the_likeliest():
    model, x = fixed()

    def drawn(units):
        return model.decoder.layers(torch.cat(units).expand(2, -1)).reshape(2, 1, 17, 17)

    longest, likeliest, none = (torch.full((16,), value) for value in (-3.0, 0.5, 0.0))
    torch.testing.assert_close(model(x).reconstruction, drawn([none, likeliest, none]))
    with_target = model(x, torch.tensor([0, 1])).reconstruction
    torch.testing.assert_close(with_target[0], drawn([longest, none, none])[0])
    torch.testing.assert_close(with_target[1], drawn([none, likeliest, none])[1])
    assert (with_target[0] - with_target[1]).abs().max() > 1e-3


def test_convnet_cr_sf_is_capsnet_without_routing():
    size = {"image": IMAGE, "n_classes": CLASSES, "width": 32}
    convnet = create_model("gu_convnet_cr_sf", **size).double().eval()
    capsnet = create_model("gu_capsnet_nor", **size).double().eval()
    convnet.decoder.load_state_dict(capsnet.decoder.state_dict())
    convolutions = [
        (convnet.primary.projection[0], capsnet.backbone[0]),
        (convnet.primary.projection[2], capsnet.primary.projection[0]),
    ]
    n_in = 128  # 17×23 → 9×15 → 1×4 positions of 32 types
    assert convnet.units.bias is None
    for _ in range(20):
        x, weight = torch.rand(3, *IMAGE).double(), capsnet.layers["classes"].weight  # [i, j, d, c]
        with torch.no_grad():
            weight.normal_()
            # A class is the mean of its votes: every coupling is one over the children.
            convnet.units.weight.copy_(weight.permute(1, 2, 0, 3).reshape(CLASSES * 16, -1) / n_in)
            for ours, theirs in convolutions:
                for parameter in theirs.parameters():
                    parameter.normal_(std=0.05)
                ours.load_state_dict(theirs.state_dict())
            out, expected = convnet(x), capsnet(x)
        assert (out.classes.pose - expected.classes.pose).abs().max() < 1e-12
        assert (out.scores - expected.scores).abs().max() < 1e-12
        assert expected.scores.std() > 1e-3
        torch.testing.assert_close(out.reconstruction, expected.reconstruction)


def test_primary_relu_of_convnet_cr_sf():
    torch.manual_seed(4)
    with_relu = made("gu_convnet_cr_sf")
    torch.manual_seed(4)
    without = made("gu_convnet_cr_sf", primary_relu=False)
    raw = without.primary.projection(images()).unflatten(1, (-1, 8))
    grouped = raw.permute(0, 3, 4, 1, 2).flatten(1, 3)
    assert (raw < 0).any()
    torch.testing.assert_close(without.primary(images()).pose, squash(grouped))
    torch.testing.assert_close(with_relu.primary(images()).pose, squash(grouped.relu()))


def test_pixels_whose_sum_overflows_are_finite():
    model = shared("gu_convnet_cr")
    huge = torch.full((1, 3, 17, 23), torch.finfo(torch.float32).max)
    assert not huge.sum().isfinite()
    model(huge)
    both = torch.zeros(1, 3, 17, 23)
    both[0, 0, 0, :2] = torch.tensor([float("inf"), -float("inf")])
    with pytest.raises(TorchcapsError, match=r"^the images hold NaN or infinite values"):
        model(both)
