"""The terms of a loss added up by hand: which loss the scores get, and which images are drawn."""

import math

import pytest
import torch

from error_text import text_of
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


def test_margin_loss_of_two_objects():
    # There: (0.9 − 0.5)² + (0.9 − 0.7)²; not there: 0.5 (0.3 − 0.1)².
    assert classification([0.5, 0.7, 0.3], [1, 0]) == pytest.approx(0.16 + 0.04 + 0.02)


def test_margin_loss_of_a_class_named_twice():
    expected = 0.16 + 0.5 * (0.6**2 + 0.2**2)
    assert classification([0.5, 0.7, 0.3], [0, 0]) == pytest.approx(expected)


def test_binary_loss_of_two_objects_by_independent_logits():
    expected = math.log1p(math.exp(-1)) + math.log1p(math.exp(2)) + math.log1p(math.exp(-3))
    found = classification([1.0, 2.0, 3.0], [0, 2], scores_are="independent_logits")
    assert found == pytest.approx(expected)


def test_binary_loss_asked_for_by_name_takes_logits_one_by_one():
    expected = math.log1p(math.exp(-1)) + math.log1p(math.exp(2))
    found = classification([1.0, 2.0], 0, scores_are="logits", loss="binary")
    assert found == pytest.approx(expected)


def test_cross_entropy_asked_for_by_name_takes_lengths_as_logits():
    found = classification([0.2, 0.2], 1, loss="cross_entropy")
    assert found == pytest.approx(math.log(2))


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


def test_margin_loss_by_the_margins_of_the_recipe():
    # There: (0.8 − 0.5)²; not there: 2 (0.7 − 0.2)² + 2 (0.3 − 0.2)².
    fields = {"loss": "margin", "m_plus": 0.8, "m_minus": 0.2, "lambda_": 2.0}
    assert classification([0.5, 0.7, 0.3], 0, **fields) == pytest.approx(0.09 + 0.5 + 0.02)


# [tsai2020] swaps the losses of capsules and of ConvNets: margins are those of probabilities.
def test_margin_loss_of_logits_is_that_of_their_probabilities():
    # A softmax makes them 1/4 and 3/4, sigmoids 1/4 and 3/4 too.
    softmax, sigmoids = [0.0, math.log(3)], [-math.log(3), math.log(3)]
    expected = 0.65**2 + 0.5 * 0.65**2
    found = classification(softmax, 0, scores_are="logits", loss="margin")
    assert found == pytest.approx(expected)
    found = classification(sigmoids, 0, scores_are="independent_logits", loss="margin")
    assert found == pytest.approx(expected)
    both = classification(sigmoids, [0, 1], scores_are="independent_logits", loss="margin")
    assert both == pytest.approx(0.65**2 + 0.15**2)


@pytest.mark.parametrize("scores_are", ["logits", "independent_logits"])
def test_spread_loss_of_logits_is_that_of_the_logits(scores_are):
    # The margin is 0.595 at this step; the true class leads by 0.1 and by 0.2.
    expected = 0.495**2 + 0.395**2
    found = classification([2.5, 2.4, 2.3], 0, step=200_000, scores_are=scores_are, loss="spread")
    assert found == pytest.approx(expected, abs=1e-5)


def test_margin_loss_of_a_softmax_refuses_two_objects():
    words = text_of(lambda: classification([1.0, 2.0], [0, 1], scores_are="logits", loss="margin"))
    assert words == (
        'loss = "margin" wants every class that is there to be probable, but mnist labels several '
        'an image, and the probabilities of a softmax sum to one; take "binary".'
    )


def test_cross_entropy_refuses_two_objects():
    said = text_of(lambda: classification([0.1, 0.2], [0, 1], loss="cross_entropy"))
    assert said == (
        'loss = "cross_entropy" is for images of one object, but mnist labels several; take '
        '"margin", "spread" or "binary".'
    )


@pytest.mark.parametrize("labels", [[0, 2], [2, 0]])
def test_spread_loss_lets_both_objects_lead_the_rest(labels):
    # The margin is 0.595 at this step; 2.5 leads 2.4 by 0.1, and 2.3 trails it by as much.
    found = classification(
        [2.5, 2.4, 2.3], labels, step=200_000, scores_are="independent_logits", loss="spread"
    )
    assert found == pytest.approx(0.495**2 + 0.695**2, abs=1e-5)


def test_spread_loss_counts_an_object_that_is_shown_twice_once():
    both = {"step": 200_000, "scores_are": "independent_logits", "loss": "spread"}
    assert classification([2.5, 2.4, 2.3], [0, 0], **both) == pytest.approx(
        classification([2.5, 2.4, 2.3], 0, **both)
    )


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
