"""Standardised images: a part of every network, saved with it, unseen by who shows it images."""

import inspect

import pytest
import torch

from torchcaps.models import MODELS, create_model, load, save
from torchcaps.models.images import Standardise

NUMBERS = ((0.25, 0.5), (0.125, 0.75))
# One network of each kind, as small as it can be.
KINDS = {
    "CapsuleNetwork": "peer_sign_dynamic",
    "ConvNet": "gu_convnet_r",
    "ConvNetCR": "gu_convnet_cr",
    "ConvNetCRSF": "gu_convnet_cr_sf",
    "DeepCaps": "deepcaps",
    "LinearOnBackbone": "linear_on_backbone",
    "SelfRoutingNetwork": "hahn_sr_convnet",
}


def made(name, **options):
    torch.manual_seed(0)
    network = create_model(name, image=(2, 20, 22), n_classes=3, **options).double().eval()
    with torch.no_grad():
        for weight in network.parameters():
            # As after training: self-routing begins with zeros, and sees no images.
            weight.copy_(torch.randn_like(weight) if not weight.any() else weight)
    return network


def test_every_kind_of_network_is_tested_here():
    makers = [preset.build for preset in MODELS.values()]
    kinds = [
        maker if isinstance(maker, type) else inspect.signature(maker).return_annotation
        for maker in makers
    ]
    assert {kind.__name__ for kind in kinds} == set(KINDS)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_network_sees_what_another_is_shown(kind):
    name = KINDS[kind]
    images = torch.rand(1, 2, 20, 22, dtype=torch.float64)
    mean, std = (torch.tensor(each, dtype=torch.float64)[:, None, None] for each in NUMBERS)
    plain = made(name)
    found = made(name, standardise=NUMBERS)
    assert type(found).__name__ == kind
    torch.testing.assert_close(found(images).scores, plain((images - mean) / std).scores)
    assert not torch.allclose(found(images).scores, plain(images).scores)


def test_the_numbers_are_saved_with_the_weights(tmp_path):
    network = create_model(
        "peer_sign_dynamic", image=(2, 5, 4), standardise=((0.1, 1 / 3), (0.2, 2))
    ).eval()
    save(network, tmp_path / "a.safetensors")
    again = load(tmp_path / "a.safetensors")
    images = torch.rand(3, 2, 5, 4)
    assert torch.equal(again(images).scores, network(images).scores)
    assert again.config["standardise"] == ([0.1, 1 / 3], [0.2, 2])
    assert "standardise" not in create_model("peer_sign_dynamic").config


def test_channels_come_to_mean_0_and_deviation_1():
    images = torch.randn(50, 2, 30, 30) * torch.tensor(NUMBERS[1])[:, None, None]
    images += torch.tensor(NUMBERS[0])[:, None, None]
    found = Standardise(2, *NUMBERS)(images).transpose(0, 1).flatten(1)
    torch.testing.assert_close(found.mean(1), torch.zeros(2), rtol=0, atol=0.02)
    torch.testing.assert_close(found.std(1), torch.ones(2), rtol=0, atol=0.02)
