"""Balanced initialisation of whole networks: lengths on images it never saw, and what it leaves."""

import os

import pytest
import torch
from torch import nn

from error_text import text_of
from torchcaps import create_model
from torchcaps.data import load, part_whole
from torchcaps.layers import DenseCapsules, EMRouting, PrimaryCapsules
from torchcaps.models.initialise import balance_network
from torchcaps.models.network import CapsuleNetwork
from torchcaps.ops import margin_loss

ROOT = os.environ.get("TORCHCAPS_DATA")
# What networks are made of, and the pixels around 24×24 ones that some need.
KINDS = [
    ("mitterreiter_5x16", {"routing": "dynamic", "decoder": False}, 0),
    ("mitterreiter_5x16", {"routing": "uniform", "decoder": False}, 0),
    ("capsnet", {"routing": "dynamic", "decoder": False}, 0),
    ("capsnet", {"routing": "uniform", "decoder": False}, 0),
    ("mitterreiter_grid", {"widths": "16,15,7,6", "decoder": False}, 0),
    ("rem_multilayer", {}, 0),
    ("peer_deep_dynamic", {"n_layers": 9, "decoder": False}, 0),
    ("peer_deep_dynamic", {"n_layers": 5, "bias": "added", "decoder": False}, 0),
    ("gamma_capsnet", {"decoder": False}, 0),
    ("rem_eff_mnist", {}, 0),
    ("rem_effconv", {}, 8),
    pytest.param("tsai_dmm_vector_dynamic", {}, 4, marks=pytest.mark.slow),
]


@torch.no_grad()
def lengths(network, images):
    """Of the primary capsules, then of every layer."""
    trace = network(images, keep="last").trace
    capsules = [trace[0].children, *(layer.routed.parents for layer in trace)]
    return [float(each.pose.norm(dim=-1).mean()) for each in capsules]


def outside(found):
    return [length for length in found if not 0.2 <= length <= 0.6]


def tiny(routing="dynamic"):
    """A backbone with statistics and 9 primary capsules, two layers."""
    backbone = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    sizes = {"hidden": (9, 5), "classes": (5, 3)}
    return CapsuleNetwork(
        image=(1, 5, 5),
        backbone=backbone,
        primary=PrimaryCapsules(nn.Conv2d(4, 4, 1), d_out=4),
        primary_grid=(3, 3, 1),
        layers={
            name: DenseCapsules(n_in=n_in, d_in=4, n_out=n_out, d_out=4, routing=kind)
            for (name, (n_in, n_out)), kind in zip(sizes.items(), ("dynamic", routing), strict=True)
        },
    )


@pytest.mark.parametrize(("name", "options", "padding"), KINDS)
def test_lengths_are_middling_on_images_it_never_saw(name, options, padding):
    images = part_whole("test", 16).pixels(slice(None))[..., 4:28, 4:28]
    images = nn.functional.pad(images, (padding,) * 4)
    network = create_model(name, image=tuple(images.shape[1:]), n_classes=10, **options)
    balance_network(network)
    assert not outside(lengths(network, images))


def test_primary_capsules_behind_a_relu_stay():
    """Their projection is more than one convolution, so only routed layers are balanced."""
    images = part_whole("test", 16).pixels(slice(None))[..., 4:28, 4:28]
    network = create_model("gu_aff_capsnet_dr", image=(1, 24, 24), n_classes=10)
    before = lengths(network, images)
    balance_network(network)
    after = lengths(network, images)
    assert after[0] == before[0] < 0.1
    assert not outside(after[1:])


@pytest.mark.parametrize("image", [(3, 17, 40), (1, 25, 17)])
def test_any_image_size(image):
    network = create_model("mitterreiter_5x16", image=image, n_classes=4, decoder=False)
    balance_network(network)
    assert not outside(lengths(network, torch.rand(64, *image)))


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


@pytest.fixture(scope="module")
def digits():
    if ROOT is None:
        pytest.skip("TORCHCAPS_DATA is not set; it names the folder that holds MNIST/raw")
    data = load("mnist", split="train", root=ROOT)
    first = torch.arange(3_000)
    return data.pixels(first), data.labels[first]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("start", ["customary", "paper", "balanced"])
def test_ten_layers_learn_mnist(digits, start, seed):
    """Two epochs of 2,000 digits, nine routed layers without bias. With the customary N(0, 0.1²)
    their lengths vanish and nothing is learnt; with the preset's N(0, 1), or balanced, it is."""
    images, labels = digits
    options = {
        "customary": {"weight_std": 0.1},
        "paper": {"init": "paper"},
        "balanced": {"init": "balanced"},
    }
    torch.manual_seed(seed)
    network = create_model(
        "mitterreiter_grid",
        image=(1, 28, 28),
        n_classes=10,
        widths=",".join(["16"] * 9),
        decoder=False,
        **options[start],
    )
    found = lengths(network, images[2000:2064])[1:]
    assert bool(outside(found)) == (start != "balanced")
    if start == "customary":
        assert found[-1] < 1e-6
    optimiser = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(2):
        network.train()
        for index in torch.randperm(2_000).split(32):
            loss = margin_loss(network(images[index]).scores, labels[index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        said = network.eval()(images[2000:]).scores.argmax(-1)
    right = float((said == labels[2000:]).float().mean())
    assert right < 0.2 if start == "customary" else right > 0.7
