"""The terms of a loss added up by hand: which loss the scores get, and which images are drawn."""

import math

import pytest
import torch

from torchcaps.data import Batch
from torchcaps.ops import spread_loss
from torchcaps.train import make_recipe
from torchcaps.train.loss import loss_of, loss_parts
from torchcaps.types import Output

GREY = torch.full((1, 1, 1, 2), 0.5)


def recipe(**fields):
    return make_recipe(**{"model": "capsnet", "data": "mnist"} | fields)


def classification(scores, labels, *, scores_are="lengths", step=0, **fields):
    out = Output(torch.tensor([scores]), scores_are)
    parts = loss_parts(recipe(**fields), out, Batch(GREY, torch.tensor([labels])), step)
    assert set(parts) == {"classification_loss"}
    return parts["classification_loss"].item()


def log1pexp(x):
    return math.log1p(math.exp(x))


# A softmax makes 1/4 and 3/4 of them, and so do sigmoids of the others.
SOFTMAX, SIGMOIDS = [0.0, math.log(3)], [-math.log(3), math.log(3)]
MARGIN = {"loss": "margin"}
# The margin is 0.595 at this step.
SPREAD = {"loss": "spread", "step": 200_000}
EACH = {"scores_are": "independent_logits"}
LOGITS = {"scores_are": "logits"}
CASES = {
    # There: (0.9 − 0.5)² + (0.9 − 0.7)²; not there: 0.5 (0.3 − 0.1)².
    "margin of two objects": ([0.5, 0.7, 0.3], [1, 0], {}, 0.16 + 0.04 + 0.02),
    "margin of one named twice": ([0.5, 0.7, 0.3], [0, 0], {}, 0.16 + 0.5 * (0.36 + 0.04)),
    # There: (0.8 − 0.5)²; not there: 2 (0.7 − 0.2)² + 2 (0.3 − 0.2)².
    "margins of the recipe": (
        [0.5, 0.7, 0.3],
        0,
        MARGIN | {"m_plus": 0.8, "m_minus": 0.2, "lambda_": 2.0},
        0.09 + 0.5 + 0.02,
    ),
    # [tsai2020] swaps the losses of capsules and of ConvNets: margins are those of probabilities.
    "margin of logits": (SOFTMAX, 0, MARGIN | LOGITS, 0.65**2 + 0.5 * 0.65**2),
    "margin of each logit": (SIGMOIDS, 0, MARGIN | EACH, 0.65**2 + 0.5 * 0.65**2),
    "margin of two logits": (SIGMOIDS, [0, 1], MARGIN | EACH, 0.65**2 + 0.15**2),
    "binary of two objects": (
        [1.0, 2.0, 3.0],
        [0, 2],
        EACH,
        log1pexp(-1) + log1pexp(2) + log1pexp(-3),
    ),
    "binary by its name": ([1.0, 2.0], 0, LOGITS | {"loss": "binary"}, log1pexp(-1) + log1pexp(2)),
    # −ln softmax = ln(1 + e^∓0.2).
    "what fits logits": ([0.5, 0.3], 0, LOGITS, log1pexp(-0.2)),
    "cross-entropy of lengths": ([0.2, 0.2], 1, {"loss": "cross_entropy"}, math.log(2)),
    # The true class leads by 0.1 and by 0.2.
    "spread of logits": ([2.5, 2.4, 2.3], 0, SPREAD | LOGITS, 0.495**2 + 0.395**2),
    "spread of each logit": ([2.5, 2.4, 2.3], 0, SPREAD | EACH, 0.495**2 + 0.395**2),
    "spread of one shown twice": ([2.5, 2.4, 2.3], [0, 0], SPREAD | EACH, 0.495**2 + 0.395**2),
    # Both lead the rest: 2.5 leads 2.4 by 0.1, and 2.3 trails it by as much.
    "spread of two objects": ([2.5, 2.4, 2.3], [0, 2], SPREAD | EACH, 0.495**2 + 0.695**2),
    "spread of two in turn": ([2.5, 2.4, 2.3], [2, 0], SPREAD | EACH, 0.495**2 + 0.695**2),
}


@pytest.mark.parametrize(("scores", "labels", "fields", "expected"), CASES.values(), ids=CASES)
def test_the_loss_of_an_image_by_hand(scores, labels, fields, expected):
    tolerance = 1e-5 if fields.get("loss") == "spread" else 1e-6
    assert classification(scores, labels, **fields) == pytest.approx(expected, abs=tolerance)


# The margin is 0.2 + 0.79 σ(min(10, t / 50,000 − 4)) for t of 500,000 updates.
@pytest.mark.parametrize(
    ("step", "spread_steps", "margin"),
    [(0, 500_000, 0.214209), (200, 500, 0.595), (500, 500, 0.988047), (200_000, 500_000, 0.595)],
)
def test_the_margin_of_the_spread_loss_grows_with_the_updates(step, spread_steps, margin):
    # The true class leads by 0.1 and by 0.2.
    expected = sum(max(0, margin - lead) ** 2 for lead in (0.1, 0.2))
    found = classification([0.5, 0.4, 0.3], 0, step=step, loss="spread", spread_steps=spread_steps)
    assert found == pytest.approx(expected, abs=2e-6)


def drawn(reconstruction, batch):
    out = Output(torch.tensor([[0.9, 0.1]]), "lengths", None, reconstruction)
    parts = loss_parts(recipe(reconstruction_weight=0.1), out, batch, 0)
    assert parts["classification_loss"].item() == pytest.approx(0, abs=1e-12)
    return parts["reconstruction_loss"].item()


def test_each_object_is_compared_with_its_own_image():
    alone = torch.tensor([[0.5, 0.0], [0.0, 1.0]]).reshape(1, 2, 1, 1, 2)
    batch = Batch(GREY, torch.tensor([[0, 0]]), alone)
    # Black is off by 0.25 in the first and by 1 in the second image.
    assert drawn(torch.zeros_like(alone), batch) == pytest.approx(0.1 * 1.25)


def test_a_decoder_of_all_classes_is_compared_with_the_whole_image():
    batch = Batch(GREY, torch.tensor([[0, 0]]), torch.zeros(1, 2, 1, 1, 2))
    assert drawn(torch.zeros(1, 1, 1, 2), batch) == pytest.approx(0.1 * 0.5)


def test_sums_are_taken_in_float32_whatever_the_scores_come_in():
    out = Output(torch.tensor([[0.9, 0.1]], dtype=torch.bfloat16), "lengths")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        parts = loss_parts(recipe(), out, Batch(GREY, torch.tensor([1])), 0)
    assert parts["classification_loss"].dtype == torch.float32


def test_loss_of_is_the_loss_that_a_recipe_trains_by():
    torch.manual_seed(0)
    labels, images = torch.tensor([2, 0]), torch.rand(2, 1, 3, 3)
    lengths = Output(torch.rand(2, 3), "lengths", reconstruction=torch.rand(2, 1, 3, 3))
    logits = Output(torch.randn(2, 3), "logits")
    for out, fields in ((lengths, {}), (logits, {}), (logits, {"loss": "binary"})):
        recipe = make_recipe(model="capsnet", data="mnist", **fields)
        parts = loss_parts(recipe, out, Batch(images, labels), 0)
        whole = loss_of(out, labels, images=images, **fields)
        torch.testing.assert_close(whole, torch.stack(list(parts.values())).sum())
        torch.testing.assert_close(loss_of(out, labels, **fields), parts["classification_loss"])
    spread = loss_of(lengths, labels, loss="spread", margin=0.5)
    torch.testing.assert_close(spread, spread_loss(lengths.scores, labels, margin=0.5))
