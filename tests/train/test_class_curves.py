"""Curves and reliability beside scikit-learn, temperature by hand."""

import numpy as np
import pytest
import torch
from sklearn.metrics import precision_recall_curve, roc_auc_score, roc_curve

from laid_scores import drawn
from torchcaps.train.class_curves import GRID, at_temperature, calibrated, class_curves, temperature
from torchcaps.types import Output


@pytest.mark.parametrize("levels", [None, 2], ids=["no ties", "ties"])
@pytest.mark.parametrize("are", ["lengths", "logits"])
def test_every_point_is_that_of_scikit_learn(are, levels):
    out, labels = drawn(0, are=are, levels=levels)
    exact = Output(out.scores.double(), are).probabilities().numpy()
    for k, found in enumerate(class_curves(out, labels)):
        is_class = labels.numpy() == k
        x, y, _ = roc_curve(is_class, exact[:, k], drop_intermediate=False)
        assert np.allclose(found.false_positive, x)
        assert np.allclose(found.recall, y)
        precision, recall, _ = precision_recall_curve(is_class, exact[:, k])
        # It adds the point (0, 1), and stands the other way round.
        assert np.allclose(found.recall[1:], recall[-2::-1])
        assert np.allclose(found.precision[1:], precision[-2::-1])
        assert found.images == is_class.sum()


def test_a_class_that_no_image_or_every_image_shows_has_no_curve():
    out, labels = drawn(0, (20, 0, 30))
    first, absent, last = class_curves(out, labels)
    assert absent is None
    assert (first.images, last.images) == (20, 30)
    assert class_curves(*drawn(0, (0, 12))) == [None, None]


def test_bands_are_quantiles_of_the_curves_of_images_drawn_anew():
    """Two images of a class and two others: every draw can be told by hand."""
    # Of the class 0.9 and 0.4, others 0.6 and 0.1; drawn within each class.
    out = Output(torch.tensor([[0.9, 0.0], [0.4, 0.0], [0.6, 0.0], [0.1, 0.0]]), "lengths")
    found = class_curves(out, torch.tensor([0, 0, 1, 1]))[0]
    low, high = found.bands[:, 0]
    assert found.recall.tolist() == [0, 0.5, 0.5, 1, 1]
    # A quarter of the draws has 0.4 twice, of which a quarter lies below 0.6 twice: 1/16 of all.
    assert (float(low[0]), float(low[50]), float(high[0])) == (0, 0, 1)
    assert (float(low[100]), float(high[100])) == (1, 1)


@pytest.mark.parametrize("levels", [None, 2])
def test_the_curve_on_the_grid_is_that_of_the_images_where_every_image_is_a_group(levels):
    """Of one group a draw is the images themselves, so that the band is the curve."""
    out, labels = drawn(1, levels=levels)
    for k, found in enumerate(class_curves(out, labels, groups=["one"] * len(labels))):
        is_class = labels.numpy() == k
        expected = np.interp(GRID, found.false_positive, found.recall)
        inside = ~np.isin(GRID.round(12), found.false_positive.numpy().round(12))
        for end in found.bands[:, 0]:
            assert np.allclose(end[inside], expected[inside])
        precision, recall = found.precision[1:].numpy(), found.recall[1:].numpy()
        first = [precision[np.argmax(recall >= g - 1e-12)] for g in GRID[1:]]
        assert np.allclose(found.bands[0, 1, 1:], first)
        area = float(torch.trapezoid(found.recall, found.false_positive))
        probability = Output(out.scores.double(), "logits").probabilities()[:, k]
        assert area == pytest.approx(roc_auc_score(is_class, probability))


def test_whole_groups_are_drawn():
    """Images of four patients a class vary otherwise than as many of many."""
    out, labels = drawn(2, (16, 16), better=0.8)
    groups = [f"{int(label)}{k % 4}" for k, label in enumerate(labels)]
    alone, together = (class_curves(out, labels, groups=each)[0] for each in (None, groups))
    assert alone.recall.equal(together.recall)
    assert not torch.equal(alone.bands, together.bands)
    # With one patient a class a draw lacks it in a quarter of the draws: no band.
    few = class_curves(out, labels, groups=[str(int(label)) for label in labels])[0]
    assert few.bands is None


@pytest.mark.parametrize("are", ["logits", "independent_logits", "lengths"])
def test_a_network_that_says_nine_tenths_and_is_right_in_three_quarters(are):
    """log 9 becomes log 3: the temperature is 2, and the error goes from 0.15 to 0."""
    sure = {"logits": [9.0, 1.0], "independent_logits": [9.0, 1 / 9], "lengths": [0.9, 0.1]}[are]
    row = torch.tensor([sure])
    out = Output((row if are == "lengths" else row.log()).expand(8, 2), are)
    labels = torch.tensor([0, 0, 0, 1] * 2)
    found = temperature(out, labels)
    assert found == pytest.approx(2, abs=1e-5)
    sums, before = calibrated(out, labels)
    assert before.value == pytest.approx(0.15)
    assert calibrated(at_temperature(out, found), labels)[1].value == pytest.approx(0, abs=1e-6)
    assert sums.nonzero().tolist() == [[0, 13], [1, 13], [2, 13]]
    assert sums[:, 13].tolist() == pytest.approx([8, 7.2, 6])
    # Drawn within their class, as many are right in every draw.
    assert before.why == "images that are drawn anew give the same value"


def test_a_temperature_of_one_changes_nothing_and_none_changes_an_answer():
    out, _ = drawn(3, are="lengths")
    assert torch.allclose(at_temperature(out, 1.0).scores, out.scores.double(), atol=1e-6)
    assert at_temperature(out, 9.0).scores.argmax(-1).equal(out.scores.argmax(-1))


def test_the_temperature_is_the_best_of_many():
    for are in ("logits", "independent_logits"):
        out, labels = drawn(4, are=are, better=3.0)
        best = temperature(out, labels)

        def loss(t, out=out, labels=labels, are=are):
            z = out.scores.double() / t
            if are == "logits":
                return float(torch.nn.functional.cross_entropy(z, labels))
            there = torch.nn.functional.one_hot(labels, 3).double()
            return float(torch.nn.functional.binary_cross_entropy_with_logits(z, there))

        assert loss(best) <= min(loss(best * (1 + k / 100)) for k in range(-20, 21))


def test_answers_that_are_all_right_or_say_nothing_have_a_bounded_temperature():
    right = Output(torch.tensor([[4.0, 0.0], [0.0, 4.0]]), "logits")
    assert temperature(right, torch.tensor([0, 1])) == pytest.approx(1 / 64)
    assert temperature(right, torch.tensor([1, 0])) == pytest.approx(64)
    assert temperature(Output(torch.zeros(2, 2), "logits"), torch.tensor([0, 1])) > 0


def test_the_error_is_by_hand_and_its_interval_holds_it():
    out, labels = drawn(5, (30, 60, 40))
    _, found = calibrated(out, labels)
    p, said = out.scores.double().softmax(-1).max(-1)
    right, error = (said == labels).numpy(), 0.0
    for b in range(15):
        inside = ((p >= b / 15) & (p < (b + 1) / 15)).numpy()
        if inside.any():
            error += abs(p.numpy()[inside].mean() - right[inside].mean()) * inside.mean()
    assert found.value == pytest.approx(error)
    low, high = found.interval
    assert 0 <= low <= error <= high <= 1
    _, grouped = calibrated(out, labels, groups=[str(k // 10) for k in range(130)])
    assert grouped.value == found.value
    assert grouped.interval != found.interval


def test_the_order_of_images_changes_no_curve():
    out, labels = drawn(6, levels=2)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    first = class_curves(out, labels)[0]
    again = class_curves(Output(out.scores[order], "logits"), labels[order])[0]
    assert first.bands.equal(again.bands)
