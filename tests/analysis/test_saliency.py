"""Saliency on paper: a grid of two types, the share inside a mask, and how far maps are apart."""

from dataclasses import replace

import pytest
import torch

import traces
from torchcaps import create_model
from torchcaps.analysis import focus, saliency, saliency_distance


def grid_trace():
    """One image, 1 × 2 positions of two types, two classes."""
    lengths = torch.tensor([[1.0, 0.5, 0.2, 0.0]])
    coupling = torch.tensor([[[0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [0.3, 0.7]]])
    (layer,) = traces.network({"classes": coupling}, {"primary": lengths})
    return (replace(layer, child_grid=(1, 2, 2)),)


def test_equation_16_on_paper():
    maps = saliency(grid_trace(), torch.tensor([0]), n_classes=2, size=(1, 2))
    # (1 · 0.5 + 0.5 · 1) / 2 on the left, (0.2 · 0 + 0 · 0.3) / 2 on the right.
    assert maps.tolist() == [[[0.5, 0.0]]]
    other = saliency(grid_trace(), torch.tensor([1]), n_classes=2, size=(1, 2))
    torch.testing.assert_close(other, torch.tensor([[[0.25, 0.1]]]).double())


def test_maps_are_stretched_and_keep_their_sides():
    maps = saliency(grid_trace(), torch.tensor([0]), n_classes=2, size=(6, 8))
    assert maps.shape == (1, 6, 8)
    assert maps[0, :, 0].eq(0.5).all()
    assert maps[0, :, -1].eq(0).all()


def test_focus_is_the_share_inside():
    maps = torch.tensor([[[3.0, 1.0]], [[0.0, 0.0]]])
    inside = torch.tensor([[[True, False]], [[True, True]]])
    found = focus(maps, inside)
    assert found[0] == 0.75
    assert found[1].isnan()
    assert focus(maps[:1], torch.ones(1, 1, 2, dtype=torch.bool)) == 1


def test_the_distance_of_two_maps_on_paper():
    first = torch.tensor([[[3.0, 0.0], [0.0, 4.0]]])
    # Σ E F = 3 · 4 + 4 · 3 = 24, both norms 5: 1 - 24 / 25.
    assert saliency_distance(first, torch.tensor([[[4.0, 0.0], [0.0, 3.0]]])).tolist() == (
        pytest.approx([0.04], abs=1e-15)
    )
    # 3 · 1 / (5 · 1)
    assert saliency_distance(first, torch.tensor([[[1.0, 0.0], [0.0, 0.0]]])).tolist() == [0.4]


def test_maps_that_differ_in_strength_alone_are_not_apart():
    torch.manual_seed(0)
    first = torch.rand(200, 5, 7)
    # Images by themselves: each has its own factor.
    apart = saliency_distance(first, first * torch.linspace(1e-6, 1e6, 200)[:, None, None])
    assert apart.shape == (200,)
    assert ((apart >= 0) & (apart < 1e-12)).all()
    left, right = torch.zeros(2, 1, 3, 4)
    left[0, :, :2], right[0, :, 2:] = 1.0, 1.0
    assert saliency_distance(left, right).tolist() == [1.0]
    # A map that is zero everywhere has no direction.
    assert saliency_distance(left, 0 * left).isnan().all()


def test_a_mask_may_be_of_ones_and_zeros():
    maps = torch.tensor([[[3.0, 1.0]]])
    assert focus(maps, torch.tensor([[[1, 0]]])) == 0.75


def test_a_network_on_a_map_has_a_map():
    model = create_model("rem_dr", image=(1, 20, 24), n_classes=3).eval()
    with torch.no_grad():
        out = model(torch.rand(2, 1, 20, 24), keep="last")
    maps = saliency(out.trace, out.scores.argmax(-1), n_classes=3, size=(20, 24))
    assert maps.shape == (2, 20, 24)
    assert (maps >= 0).all()
