"""Balanced initialisation of whole networks: lengths on images it never saw, and what it leaves."""

import pytest
import torch
from torch import nn

from told import text_of
from torchcaps import create_model
from torchcaps.data import part_whole
from torchcaps.layers import DenseCapsules, EMRouting, PrimaryCapsules
from torchcaps.models.balance import balance_network
from torchcaps.models.network import CapsuleNetwork

KINDS = [
    ("mitterreiter_5x16", "dynamic"),
    ("mitterreiter_5x16", "uniform"),
    ("capsnet", "dynamic"),
    ("capsnet", "uniform"),
]


@torch.no_grad()
def lengths(network, images):
    """Of the primary capsules, then of every layer."""
    trace = network(images, keep="last").trace
    capsules = [trace[0].children, *(layer.routed.parents for layer in trace)]
    return [float(each.pose.norm(dim=-1).mean()) for each in capsules]


def outside(found):
    return [length for length in found if not 0.2 <= length <= 0.6]


def tiny(projection=None, routing="dynamic"):
    """A backbone with statistics and 9 primary capsules, two layers."""
    backbone = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    sizes = {"hidden": (9, 5), "classes": (5, 3)}
    return CapsuleNetwork(
        image=(1, 5, 5),
        backbone=backbone,
        primary=PrimaryCapsules(projection or nn.Conv2d(4, 4, 1), d_out=4),
        primary_grid=(3, 3, 1),
        layers={
            name: DenseCapsules(n_in=n_in, d_in=4, n_out=n_out, d_out=4, routing=kind)
            for (name, (n_in, n_out)), kind in zip(sizes.items(), ("dynamic", routing), strict=True)
        },
    )


@pytest.mark.parametrize(("name", "routing"), KINDS)
def test_lengths_are_middling_on_images_it_never_saw(name, routing):
    images = part_whole("test", 16).pixels(slice(None))[..., 4:28, 4:28]
    network = create_model(name, image=(1, 24, 24), n_classes=10, routing=routing, decoder=False)
    balance_network(network)
    assert not outside(lengths(network, images))


@pytest.mark.parametrize("image", [(3, 17, 40), (1, 25, 17)])
def test_any_image_size(image):
    network = create_model("mitterreiter_5x16", image=image, n_classes=4, decoder=False)
    balance_network(network)
    assert not outside(lengths(network, torch.rand(64, *image)))


def test_images_of_ones_own():
    """Standardised images are far from the noise that it looks at by itself."""
    images = 4 * torch.randn(32, 1, 19, 19)
    network = create_model("capsnet", image=(1, 19, 19), decoder=False)
    balance_network(network)
    assert outside(lengths(network, images))
    balance_network(network, images=images)
    assert lengths(network, images) == pytest.approx([0.4] * 2, abs=0.01)


def test_only_scales_change():
    network = tiny()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    balance_network(network)
    assert torch.equal(torch.get_rng_state(), state)
    scales = {}
    for name, after in network.state_dict().items():
        if not torch.equal(after, before[name]):
            ratio = after / before[name]
            torch.testing.assert_close(ratio, ratio.mean().expand_as(ratio))
            scales[name] = float(ratio.mean())
    assert set(scales) == {
        "primary.projection.weight",
        "primary.projection.bias",
        "layers.hidden.weight",
        "layers.classes.weight",
    }
    weight, bias = scales["primary.projection.weight"], scales["primary.projection.bias"]
    assert weight == pytest.approx(bias)
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_other_projections_stay_but_layers_are_balanced():
    projection = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    network = tiny(projection)
    before = {name: value.clone() for name, value in projection.state_dict().items()}
    balance_network(network)
    after = projection.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert not outside(lengths(network, torch.rand(64, 1, 5, 5))[1:])


def test_the_same_weights_get_the_same_scales():
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        network = tiny().double()
        balance_network(network)
        states.append(network.state_dict())
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)


def test_on_meta_nothing_happens():
    with torch.device("meta"):
        network = tiny()
        balance_network(network)
    assert all(parameter.is_meta for parameter in network.parameters())


def test_em_routing_is_refused():
    network = tiny(routing=EMRouting())
    assert "layer 'classes' has EMRouting" in text_of(lambda: balance_network(network))
