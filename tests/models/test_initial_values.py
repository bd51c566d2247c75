"""Initial weights are those that papers and their code give, worked out here by hand."""

import math

import pytest
import torch

from torchcaps import create_model
from torchcaps.ops import margin_loss


def he(*fan_in):
    return math.sqrt(2 / math.prod(fan_in))


# Name, options, weights and the deviation they are drawn with.
DRAWN = [
    ("capsnet", {}, {"layers.classes": 0.1}),
    ("rem_gamma", {}, {"layers.hidden": 0.1, "layers.classes": 0.1}),
    ("mitterreiter_5x16", {}, {"layers.hidden_3": 1.0, "layers.classes": 1.0}),
    # sqrt(J / (√d I k²)) with √d components summed of a matrix pose, d of a vector.
    (
        "tsai_inverted_simple_c10",
        {},
        {
            "layers.conv_1": math.sqrt(32 / (4 * 32 * 9)),
            "layers.conv_2": math.sqrt(32 / (4 * 32 * 9)),
            "layers.classes": math.sqrt(10 / (4 * 800)),
        },
    ),
    (
        "tsai_dmm_vector",
        {},
        {
            "layers.conv_1": math.sqrt(16 / (64 * 16 * 9)),
            "layers.classes": math.sqrt(10 / (64 * 576)),
        },
    ),
    # He, and class matrices whose fan-in counts all children and parents; Glorot uniform of Keras
    # over the whole map, whose fan-out is 9 · 9 · 128.
    (
        "efficient_capsnet",
        {},
        {
            "backbone.0": he(1, 5, 5),
            "backbone.3": he(32, 3, 3),
            "backbone.9": he(64, 3, 3),
            "primary.projection": math.sqrt(2 / (81 + 81 * 128)),
            "layers.classes": he(16, 10, 8),
        },
    ),
    ("rem_eff_norb", {}, {"backbone.0": he(2, 7, 7), "layers.classes": he(16, 5, 8)}),
    ("rem_effconv", {}, {"layers.conv_1": 0.1, "layers.classes": 0.1}),
    # Truncated at two deviations, which leaves 0.88 of one.
    (
        "matrix_capsnet",
        {},
        {
            "backbone.0": 0.05 * 0.8796,
            "primary.projection": 0.5,
            "primary.activation": 3.0,
            "layers.conv_1": 0.3,
            "layers.classes": 0.01,
        },
    ),
    ("tsai_em_simple_c10", {}, {"layers.conv_1": 0.1, "layers.classes": 0.1}),
    ("peer_deep_dynamic", {}, {"layers.hidden_2": 0.1, "layers.classes": 0.1}),
    ("peer_deep_em", {}, {"layers.hidden_2": 0.3, "layers.classes": 0.3}),
    # Of forty numbers at most: many together.
    ("peer_sign_em", {"n_hidden": 4000}, {"layers.hidden_2": 0.5, "layers.classes": 0.5}),
]


@pytest.mark.parametrize(
    ("name", "options", "deviations"), DRAWN, ids=[f"{row[0]}" for row in DRAWN]
)
def test_weights_are_drawn_with_the_deviation_of_their_paper(name, options, deviations):
    torch.manual_seed(0)
    model = create_model(name, **options)
    for path, expected in deviations.items():
        weight = model.get_submodule(path).weight.detach().double()
        assert weight.numel() >= 500, path
        # Five standard errors of a deviation, and of a mean.
        assert float(weight.std()) == pytest.approx(expected, rel=5 / math.sqrt(2 * weight.numel()))
        assert abs(float(weight.mean())) < 5 * expected / math.sqrt(weight.numel())


@pytest.mark.parametrize("variant", ["paper", "official", "gritzman"])
@pytest.mark.parametrize(
    ("name", "image"),
    [("peer_sign_em", (1, 1, 1)), ("peer_deep_em", (1, 20, 20)), ("matrix_capsnet", (1, 20, 20))],
)
def test_an_em_network_is_alive_under_every_variant(name, image, variant):
    """β_a of the other variants begins so large that a λ made for the paper's would leave zeros."""
    torch.manual_seed(0)
    model = create_model(name, image=image, variant=variant, bias=True)
    x = torch.rand(4, *image) * 2 - 1
    scores = model(x).scores
    assert scores.min() > 1e-6
    margin_loss(scores, torch.tensor([0, 1, 0, 1])).backward()
    for path, parameter in model.named_parameters():
        # Moving all votes of a class changes no distance: but for rounding that gradient is zero.
        if path.startswith("layers") and path != "layers.classes.vote_bias":
            assert parameter.grad.abs().max() > 1e-9, path
