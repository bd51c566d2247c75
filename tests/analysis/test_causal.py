"""Causal use: networks whose answers are their couplings, or owe nothing to them."""

import math
from functools import partial

import pytest
import torch

from error_text import text_of
from torchcaps import Capsules, create_model
from torchcaps.analysis import MeasureCausalUse, causal_use, measure, paired_fall, silence
from torchcaps.types import LayerTrace, Output, Routed, Step

LABELS = torch.tensor([0, 1, 2, 0, 1, 0, 0, 1, 0, 0])
PIXELS = LABELS[:, None, None, None].float() + torch.arange(10)[:, None, None, None] / 100


def network(pixels, *, keep="none", couple=None, intervene=None, uses=True):
    """Two layers of one child; the lower couplings name the class, and `uses` says whether the
    answer is what the lower couplings say."""
    label = pixels.view(len(pixels)).long()
    right = torch.nn.functional.one_hot(label, 3).double()[:, None]  # [b, i, j]
    couplings = {"lower": right, "upper": torch.full_like(right, 1 / 3)}
    for name, function in (couple or {}).items():
        couplings[name] = function(couplings[name])
    primary = Capsules(torch.ones(len(pixels), 1, 2), torch.ones(len(pixels), 1))
    primary = (intervene or {}).get("primary", lambda u: u)(primary)
    scores = couplings["lower"][:, 0] if uses else right[:, 0]
    # Where nothing is heard, class 2 is named.
    scores = scores * primary.activation + torch.tensor([0, 0, 1e-3])
    parents = Capsules(torch.ones(len(pixels), 3, 2), scores)
    trace = tuple(
        LayerTrace(name, primary, Routed(parents, (Step(primary, c, parents),)))
        for name, c in couplings.items()
    )
    return Output(scores, "lengths", trace=trace if keep != "none" else ())


def used(found, layer, by):
    (row,) = [row for row in found.couplings if (row.layer, row.by) == (layer, by)]
    return row


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_answers_that_are_couplings_fall_with_them(batch_size):
    found = causal_use(network, PIXELS, LABELS, batch_size=batch_size, silenced=["primary"])
    assert (found.images, found.accuracy) == (10, 1.0)
    # The most frequent class is named of all: six of ten are right.
    assert used(found, "lower", "mean").fall == pytest.approx(0.4)
    assert used(found, "lower", "same class").fall == 0
    # The single image of class 2 has nobody to borrow from.
    assert used(found, "lower", "same class").images == 9
    # Evened out, all are taken for class 2.
    assert used(found, "lower", "uniform").fall == pytest.approx(0.9)
    other = used(found, "lower", "other")
    assert 0 < other.fall == other.changed <= 1
    # Together the layers are what the lower one is; the upper one is not asked.
    for by in ("mean", "other", "same class", "uniform"):
        assert used(found, "all layers", by).fall == used(found, "lower", by).fall
        assert used(found, "upper", by).fall == used(found, "upper", by).changed == 0
    (capsule,) = found.capsules
    assert (capsule.layer, capsule.capsule, capsule.fall) == ("primary", 0, 0.9)


def test_what_is_not_used_does_not_fall():
    def deaf(pixels, **asked):
        return network(pixels, uses=False, **asked)

    found = causal_use(deaf, PIXELS, LABELS)
    assert {row.fall for row in found.couplings} == {0.0}
    low, high = found.couplings[0].interval
    # Ten images show no more than this.
    assert low == pytest.approx(-1.96 / 12)
    assert high == pytest.approx(1.96 / 12)


def test_measured_in_a_pass_is_what_the_function_says():
    batches = zip(PIXELS.split(3), LABELS.split(3), strict=True)
    (found,) = measure(partial(network, keep="last"), batches, [MeasureCausalUse(network)])
    expected = causal_use(network, PIXELS, LABELS)
    assert (found.images, found.accuracy) == (10, 1.0)
    # Who lends to whom is another draw, because a sample has an order of its own.
    for layer in ("lower", "upper", "all layers"):
        for by in ("mean", "same class", "uniform"):
            assert used(found, layer, by) == used(expected, layer, by)


def test_the_interval_on_paper():
    before = torch.tensor([True] * 8 + [False] * 2)
    after = torch.tensor([True] * 5 + [False] * 3 + [True] + [False])
    # b = 3, c = 1, k = 10.
    fall, (low, high) = paired_fall(before, after)
    half = 1.96 * math.sqrt(3 + 1 + 1 - 4 / 12) / 12
    assert fall == pytest.approx(0.2)
    assert (low, high) == pytest.approx((2 / 12 - half, 2 / 12 + half))


def test_several_objects_share_an_image():
    labels = torch.tensor([[0, 1], [1, 0], [2, 1]])

    def pair(pixels, *, keep="none", couple=None, intervene=None):
        out = network(pixels, keep=keep, couple=couple)
        scores = torch.tensor([[3.0, 2, 1]]).expand(len(pixels), -1)
        return Output(scores, "independent_logits", trace=out.trace)

    assert causal_use(pair, PIXELS[:3], labels).accuracy == pytest.approx(2 / 3)


@pytest.mark.parametrize("routing", ["dynamic", "em", "uniform"])
def test_networks_of_the_library_are_asked(routing):
    model = create_model(
        "mitterreiter_grid", image=(1, 20, 20), n_classes=3, widths="4,3", d_pose=4, routing=routing
    ).eval()
    pixels, labels = torch.rand(6, 1, 20, 20), torch.tensor([0, 1, 2, 0, 1, 2])
    found = causal_use(model, pixels, labels, silenced=["hidden_2"])
    assert [row.capsule for row in found.capsules] == [0, 1, 2]
    assert {row.layer for row in found.couplings} == {"hidden_2", "classes", "all layers"}
    if routing == "uniform":
        assert {row.changed for row in found.couplings} == {0.0}
    assert '"fall"' in found.to_json()


def test_silenced_capsules_have_no_pose():
    made = silence(1)(Capsules(torch.ones(2, 3, 4), torch.ones(2, 3)))
    assert made.activation.tolist() == [[1, 0, 1]] * 2
    assert torch.equal(made.pose.norm(dim=-1), 2 * made.activation)


def test_silence_counts_from_the_end_too():
    three = Capsules(torch.ones(2, 3, 4))
    assert silence(-1)(three).pose[0, :, 0].tolist() == [1, 1, 0]


def test_a_network_whose_capsules_cannot_be_replaced_is_told():
    def never_silent(pixels, *, keep="none", couple=None):
        return network(pixels, keep=keep, couple=couple)

    assert causal_use(never_silent, PIXELS, LABELS).accuracy == 1
    sentence = text_of(lambda: causal_use(never_silent, PIXELS, LABELS, silenced=["primary"]))
    assert "never_silent takes no `intervene`" in sentence
