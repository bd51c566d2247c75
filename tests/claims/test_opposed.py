"""Gradients of opposites: of two networks whose gradients are known, and which pairs are taken."""

from dataclasses import replace

import pytest
import torch

from error_text import text_of
from torchcaps.data import SOURCES
from torchcaps.train import make_recipe
from torchcaps.train.start import initial_model
from torchcaps_claims.opposed import _pairs, cancellation_of


def test_pairs_are_the_nearest_opposites_of_different_labels():
    """2 and −2 are opposite; so are 1 and −1, of one label; −2.2 is a little longer than 2."""
    inputs = torch.tensor([[2.0], [1.0], [-1.0], [-2.0], [-2.2], [5.0]]).double()
    labels = torch.tensor([1, 0, 0, 0, 0, 1])
    pairs = _pairs(inputs, labels)
    assert pairs[:2] == [(0, 3), (0, 4)]
    assert (1, 2) not in pairs
    # Two of label 1, four of label 0.
    assert len(pairs) == 8


def test_labels_of_several_objects_are_sets():
    """They ended in a traceback."""
    inputs = torch.tensor([[2.0], [-2.0], [-2.1]]).double()
    assert _pairs(inputs, torch.tensor([[3, 1], [1, 3], [1, 4]])) == [(0, 2), (1, 2)]


def test_a_single_label_is_refused_in_a_sentence():
    said = text_of(lambda: _pairs(torch.rand(4, 2).double(), torch.zeros(4)))
    assert "all of a sample of 4 images have one label; take a set with more classes." in said


class Elsewhere(torch.nn.Module):
    """A network on another device, which tells where images come."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(1, device="meta"))

    def forward(self, image, target=None, *, keep="none"):
        raise ValueError(f"images came on {image.device}")


def test_images_go_where_the_network_is():
    images = SOURCES["sign"]("test", None)
    recipe = make_recipe(model="peer_sign_dynamic", data="sign", protocol="peer")
    with pytest.raises(ValueError, match="images came on meta"):
        cancellation_of(Elsewhere().eval(), recipe, images)


def cosine_at(length):
    """Of a network without a bias both of whose classes have this length for an input of ±1."""
    images = SOURCES["sign"]("test", None)
    options = {"bias": "none"}
    recipe = make_recipe(model="peer_sign_dynamic", data="sign", protocol="peer", options=options)
    model = initial_model(recipe, images).eval()
    weights = dict(model.named_parameters())
    ones, low, high = torch.ones(1, 1, 1, 1), 1e-3, 1e4
    with torch.no_grad():
        weights["layers.hidden_2.weight"].fill_(3.0)
        for _ in range(60):
            middle = (low * high) ** 0.5
            weights["layers.classes.weight"].fill_(middle)
            low, high = (middle, high) if model(ones).scores[0, 0] < length else (low, middle)
    largest = images.numbers.abs() == images.numbers.abs().max()
    found = cancellation_of(model, recipe, replace(images, numbers=images.numbers[largest]))
    assert found["input_cosine"] == pytest.approx(-1)
    return found["cancellation_cosine"], found["cancellation_chi"]


def test_opposites_cancel_where_both_classes_are_as_long_as_the_loss_is_even():
    """Without a bias x and −x give the same lengths l. The margin loss pulls that of the label by
    2 (0.9 − l) and pushes the other by 2 · 0.5 (l − 0.1): as strongly at l = 0.95 / 1.5, where the
    two gradients cancel. Below 0.1 nothing is pushed, and both lengthen what they have in common.
    """
    assert cosine_at(0.95 / 1.5) == (pytest.approx(-1, abs=1e-3), pytest.approx(1, abs=1e-2))
    cosine, chi = cosine_at(0.05)
    assert cosine > 0
    assert chi < 0.3
