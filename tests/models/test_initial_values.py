"""Initial weights are those that papers and their code give, worked out here by hand."""

import math

import pytest
import torch

from tables import cases_beside, worked_out
from torchcaps import create_model
from torchcaps.ops import margin_loss


def he(*fan_in):
    return math.sqrt(2 / math.prod(fan_in))


@pytest.mark.parametrize("case", cases_beside(__file__, "initial_values.toml"))
def test_weights_are_drawn_with_the_deviation_of_their_paper(case):
    torch.manual_seed(0)
    model = create_model(case["model"], **case.get("options", {}))
    for path, expected in worked_out(case["weights"], {"he": he, "sqrt": math.sqrt}).items():
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
