"""What keeps deep networks of [peer2022] Table 2 from learning: the squash of [sabour2017] makes
r² of a short length r, layer upon layer, until float32 has nothing left. A bias keeps lengths up,
also one that cannot tell an input from its negative (test_peer.py)."""

import pytest
import torch

from torchcaps.layers import use_backend
from torchcaps.models import create_model
from torchcaps.ops import margin_loss, squash, squashing


def started(n_layers, backend="auto", **options):
    """The lengths of the classes and the gradient of the first convolution, before any update."""
    torch.manual_seed(0)
    model = create_model("peer_deep_dynamic", n_layers=n_layers, width=32, **options)
    use_backend(model, backend)
    # Strokes on black, as digits are.
    images = torch.rand(8, 1, 28, 28) * (torch.rand(8, 1, 28, 28) < 0.2)
    scores = model(images).scores
    margin_loss(scores, torch.arange(8)).backward()
    first = next(p.grad for p in model.parameters() if p.ndim == 4)
    return scores.detach(), first.norm().item()


@pytest.mark.parametrize(("kind", "power"), [("hinton", 2), ("exp", 1)])
def test_a_short_length_comes_out_of_a_squash_as_its_power(kind, power):
    s = torch.tensor([0.6, 0.8], dtype=torch.float64)
    for length in (0.01, 0.005):
        found = squash(length * s, kind=kind).norm().item()
        assert found == pytest.approx(length**power, rel=6e-3)


@pytest.mark.parametrize("n_layers", [4, 5])
def test_without_a_bias_nothing_is_left_of_four_layers(n_layers):
    scores, gradient = started(n_layers)
    # Not small: zero, so that no update ever changes a weight.
    assert scores.abs().max() == 0
    assert gradient == 0


@pytest.mark.parametrize("epsilon", [1e-12, 1e-20, 1e-30])
def test_a_smaller_epsilon_in_the_squash_leaves_as_good_as_nothing(epsilon, monkeypatch):
    monkeypatch.setattr(squashing, "EPSILON", epsilon)
    scores, gradient = started(4, backend="plain")
    # Adam divides by the root of a square, which is nothing beside its own 1e-8.
    assert 0 < scores.max() < 1e-17
    assert 0 < gradient < 1e-15


def test_weights_three_times_as_large_leave_as_good_as_nothing():
    scores, gradient = started(4, weight_std=0.3)
    assert 0 < scores.max() < 1e-12
    assert 0 < gradient < 1e-10
    scores, gradient = started(5, weight_std=0.3)
    assert (scores.max(), gradient) == (0, 0)


@pytest.mark.parametrize("n_layers", [2, 3])
def test_something_is_left_of_two_and_three(n_layers):
    scores, gradient = started(n_layers)
    assert 0 < scores.max() < 0.02
    assert gradient > 0


@pytest.mark.parametrize("n_layers", [4, 5])
@pytest.mark.parametrize("bias", ["odd", "added"])
def test_any_bias_keeps_the_lengths_even_one_that_keeps_the_symmetry(bias, n_layers):
    scores, gradient = started(n_layers, bias=bias)
    assert scores.min() > 0.1
    assert gradient > 0


def test_the_squash_of_mitterreiter_keeps_some_without_a_bias():
    scores, gradient = started(5, squash="exp")
    assert 0 < scores.max() < 1e-3
    assert gradient > 0
