import numpy as np
import pytest
import torch
from scipy.stats import binomtest, norm
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    recall_score,
    roc_auc_score,
)

from laid_scores import drawn
from torchcaps.analysis.shares import wilson
from torchcaps.train import class_measures as of_classes
from torchcaps.train.class_measures import MEASURES, OF_CLASS, class_measures, macro_values
from torchcaps.train.drawn_anew import _Curve, drawn_anew, middle_of
from torchcaps.types import Output

NAMES = ("mel", "nv", "bcc")
EVERY_VALUE = "images that are drawn anew give the same value"


def of_sklearn(out, labels, classes=None):
    """Every measure of classes that have images and others, as scikit-learn has it."""
    probabilities = Output(out.scores.double(), out.scores_are).probabilities().numpy()
    said, found = out.scores.argmax(-1).numpy(), {name: [] for name in (*OF_CLASS, "f1")}
    for k in range(out.scores.shape[1]) if classes is None else classes:
        is_class, score = labels.numpy() == k, probabilities[:, k]
        found["sensitivity"].append(recall_score(is_class, said == k))
        found["specificity"].append(recall_score(~is_class, said != k))
        found["f1"].append(f1_score(is_class, said == k))
        found["auroc"].append(roc_auc_score(is_class, score))
        found["average_precision"].append(average_precision_score(is_class, score))
    return found


@pytest.mark.parametrize("levels", [None, 2, 1], ids=["no ties", "ties", "many ties"])
@pytest.mark.parametrize("are", ["lengths", "logits", "independent_logits"])
@pytest.mark.parametrize("sizes", [(8, 60, 30), (2, 3)], ids=str)
def test_every_number_is_that_of_scikit_learn(sizes, are, levels):
    out, labels = drawn(0, sizes, are=are, levels=levels)
    names = [f"class {k}" for k in range(len(sizes))]
    found, expected = class_measures(out, labels, names), of_sklearn(out, labels)
    for k, row in enumerate(found.classes.values()):
        for kind in OF_CLASS:
            assert row[kind].value == pytest.approx(expected[kind][k], abs=1e-6), kind
    for name, kind in MEASURES.items():
        assert found.macro[name].value == pytest.approx(np.mean(expected[kind.of_class]), abs=1e-6)
    said = out.scores.argmax(-1)
    assert found.macro["balanced_accuracy"].value == pytest.approx(
        balanced_accuracy_score(labels, said), abs=1e-6
    )
    assert found.macro["macro_f1"].value == pytest.approx(
        f1_score(labels, said, average="macro"), abs=1e-6
    )
    assert macro_values(out, labels) == {n: each.value for n, each in found.macro.items()}
    assert found.accuracy.value == pytest.approx(accuracy_score(labels, said))
    of_scipy = binomtest(int((said == labels).sum()), len(labels)).proportion_ci(method="wilson")
    assert found.accuracy.interval == pytest.approx((of_scipy.low, of_scipy.high), abs=1e-6)


def test_lengths_above_one_are_ranked_as_they_are():
    # A sigmoid of these, or a softmax, would make them equal, or rank them otherwise.
    scores = torch.tensor([[50.0, 1.0], [60.0, 70.0], [40.0, 70.0], [45.0, 90.0]])
    found = class_measures(Output(scores, "lengths"), torch.tensor([0, 0, 1, 1]), ("a", "b"))
    assert [row["auroc"].value for row in found.classes.values()] == [1.0, 0.875]


def test_naming_the_commonest_class_gains_nothing():
    labels = torch.tensor([0] * 85 + [1] * 10 + [2] * 5)
    out = Output(torch.tensor([[0.9, 0.1, 0.1]]).expand(100, 3), "lengths")
    found = class_measures(out, labels, NAMES).macro
    assert found["balanced_accuracy"].value == pytest.approx(1 / 3)
    assert found["macro_f1"].value == pytest.approx(2 * 0.85 / 1.85 / 3)
    assert found["auroc"].value == 0.5
    assert found["average_precision"].value == pytest.approx(1 / 3)
    # Whoever is drawn, their scores are all equal.
    assert found["auroc"].interval is None
    assert found["auroc"].why == EVERY_VALUE


def test_a_class_without_images_leaves_no_mean():
    out, labels = drawn(0, (20, 0, 30))
    found = class_measures(out, labels, NAMES)
    assert macro_values(out, labels) == {}
    for each in found.macro.values():
        assert each == (None, None, "no image is of the class 'nv'")
    absent, said = found.classes["nv"], out.scores.argmax(-1) == 1
    assert absent["specificity"].value == pytest.approx(recall_score([True] * 50, ~said))
    for kind in ("sensitivity", "auroc", "average_precision"):
        assert absent[kind] == (None, None, "no image is of this class")
    # The classes that are there have what scikit-learn finds, ties and all.
    tied, labels = drawn(1, (20, 0, 30), levels=1)
    there, expected = class_measures(tied, labels, NAMES), of_sklearn(tied, labels, (0, 2))
    for kind in OF_CLASS:
        values = [there.classes[name][kind].value for name in ("mel", "bcc")]
        assert values == pytest.approx(expected[kind], abs=1e-6), kind
    assert absent["auroc"].text() == "–: no image is of this class"


def test_images_of_one_class_have_no_ranking():
    out, labels = drawn(0, (0, 12))
    found = class_measures(out, labels, ("a", "b"))
    assert {each.why for each in found.macro.values()} == {"no image is of the class 'a'"}
    only = found.classes["b"]
    for kind in ("specificity", "auroc", "average_precision"):
        assert only[kind] == (None, None, "every image is of this class")
    right = int((out.scores.argmax(-1) == 1).sum())
    assert only["sensitivity"].value == pytest.approx(right / 12)


def test_many_absent_classes_are_counted_and_a_lone_class_is_refused():
    labels = torch.tensor([0, 0])
    names = [f"c{k}" for k in range(9)]
    why = of_classes.why_undefined(labels, names)
    assert why == "no image is of the classes 'c1', 'c2', 'c3' and 5 more"
    assert of_classes.why_undefined(labels, ["c0"]) == "there is one class alone"


def test_images_of_several_objects_have_no_measure():
    out, labels = Output(torch.rand(4, 3), "lengths"), torch.tensor([[0, 1]] * 4)
    found = class_measures(out, labels, NAMES, judged_by="top")
    assert found.classes == {}
    for each in found.numbers()["auroc"], found.numbers()["macro_f1"]:
        why = "an image may show several objects"
        assert each == {"value": None, "interval": None, "why": why}


def test_scores_that_are_not_finite_have_no_measure():
    out, labels = drawn(0)
    out.scores[3, 1] = torch.nan
    assert macro_values(out, labels) == {}
    found = class_measures(out, labels, NAMES).macro["auroc"]
    assert found == (None, None, "some scores are not finite")


def test_intervals_of_counts_by_hand():
    # Three of four found, and none of the two others taken for it.
    out = Output(torch.tensor([[1.0, 0]] * 3 + [[0, 1.0]] * 3), "lengths")
    found = class_measures(out, torch.tensor([0, 0, 0, 0, 1, 1]), ("a", "b"))
    assert found.classes["a"]["sensitivity"].interval == pytest.approx((0.3006, 0.9544), abs=1e-4)
    assert found.classes["a"]["specificity"].interval == pytest.approx((0.3424, 1.0), abs=1e-4)
    # [zou2008]: the distances of 0.75 and 1 from their bounds, as sides of a right angle, halved.
    low = 0.875 - np.hypot(0.75 - 0.3006, 1 - 0.3424) / 2
    high = 0.875 + (0.9544 - 0.75) / 2
    assert found.macro["balanced_accuracy"].interval == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize("grouped", [False, True], ids=["images", "groups"])
def test_intervals_are_shares_and_hold_their_value(grouped):
    for seed in range(12):
        out, labels = drawn(seed, (5, 25, 12), levels=seed % 3 or None, better=seed / 2)
        groups = [f"patient {at % 15}" for at in range(42)] if grouped else None
        found = class_measures(out, labels, NAMES, groups=groups)
        rows = [found.macro, *found.classes.values()]
        for each in (each for row in rows for each in row.values()):
            assert (each.interval is None) == (each.why is not None)
            if each.interval is not None:
                low, high = each.interval
                assert 0 <= low <= each.value <= high <= 1
                assert low < high


def test_the_order_of_images_changes_no_bit():
    out, labels = drawn(3, levels=2)
    groups = [f"patient {at // 4}" for at in range(len(labels))]
    other = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    turned = Output(out.scores[other], out.scores_are)
    for some, same in ((None, None), (groups, [groups[at] for at in other.tolist()])):
        first = class_measures(out, labels, NAMES, groups=some)
        assert class_measures(turned, labels[other], NAMES, groups=same) == first


def test_what_is_drawn_is_measured_as_scikit_learn_weighs_it():
    for seed in range(6):
        out, labels = drawn(seed, (9, 21), levels=seed % 3 or None)
        score, is_class = out.scores[:, 1], labels == 1
        ranks = score.unique(return_inverse=True)[1]
        times = torch.randint(4, (5, 30), generator=torch.Generator().manual_seed(seed)).float()
        auroc, precision = _Curve(ranks, is_class).areas(times)
        for row, *found in zip(times, auroc, precision, strict=True):
            weighed = {"y_true": is_class, "y_score": score, "sample_weight": row}
            expected = [area(**weighed) for area in (roc_auc_score, average_precision_score)]
            assert torch.stack(found).tolist() == pytest.approx(expected, abs=1e-9)


def test_draws_are_of_the_images_and_keep_the_size_of_each_class():
    out, labels = drawn(0, (4, 30, 16))
    ranks, said = of_classes.ranks_of(out), out.scores.argmax(-1)
    draws = drawn_anew(ranks, said, labels)
    assert draws["auroc"].shape == (1000, 3)
    # Of four images, a whole number of quarters is found.
    quarters = 4 * draws["sensitivity"][:, 0]
    assert (quarters - quarters.round()).abs().max() < 1e-6
    values = of_classes._of_classes(ranks, said, labels)
    for kind in ("sensitivity", "specificity", "f1", "auroc"):
        assert draws[kind].mean(0).tolist() == pytest.approx(values[kind].tolist(), abs=0.03), kind
    assert all(torch.equal(a, drawn_anew(ranks, said, labels)[k]) for k, a in draws.items())


def test_the_middle_of_draws_is_that_of_scipys_normal_distribution():
    draws = torch.from_numpy(norm.ppf((np.arange(1000) + 0.5) / 1000, 0.6, 0.05))
    assert middle_of(draws, 0.6) == pytest.approx(norm.interval(0.95, 0.6, 0.05), abs=2e-3)
    # Where the median of the draws lies half a deviation above the value, all of it is moved twice
    # as far down.
    low, high = middle_of(draws, 0.575)
    assert (low, high) == pytest.approx(norm.interval(0.95, 0.55, 0.05), abs=5e-3)


def test_draws_that_lie_on_one_side_of_the_value_give_no_interval():
    """3.3 % had the interval [3.3, 3.4]: all draws lay above it, and the nearest were taken."""
    draws = torch.from_numpy(norm.ppf((np.arange(1000) + 0.5) / 1000, 0.6, 0.05))
    # Where 2.5 % of the draws lie beyond the value, the bound is the value itself.
    for value in (0.6 - 1.9 * 0.05, 0.6 + 1.9 * 0.05):
        assert middle_of(draws, value)[0] < value < middle_of(draws, value)[1]
    for value in (0.4, 0.6 - 2.1 * 0.05, 0.6 + 2.1 * 0.05):
        assert middle_of(draws, value) == "nearly all draws lie on one side of the value"


def test_images_of_a_group_count_as_one():
    """Five pictures of every patient tell no more of patients than one picture of each."""
    out, labels = drawn(2, (15, 25))
    patients = [f"p{at:02}" for at in range(40)]
    once = class_measures(out, labels, ("a", "b"), groups=patients)
    five = Output(out.scores.repeat(5, 1), out.scores_are)
    again = class_measures(five, labels.repeat(5), ("a", "b"), groups=patients * 5)
    apart = class_measures(five, labels.repeat(5), ("a", "b"))
    for name, each in once.macro.items():
        assert again.macro[name].interval == pytest.approx(each.interval, abs=1e-6)
        assert np.ptp(apart.macro[name].interval) < 0.6 * np.ptp(each.interval)


def test_one_group_has_no_interval_and_few_groups_say_so():
    out, labels = drawn(0)
    alone = class_measures(out, labels, NAMES, groups=["p"] * len(labels))
    assert alone.macro["auroc"].value == class_measures(out, labels, NAMES).macro["auroc"].value
    for each in (*alone.macro.values(), *alone.classes["mel"].values()):
        assert (each.interval, each.why) == (None, "all images are of one group")
    # One patient has all images of a class: a third of the draws are without him.
    groups = ["sick" if label == 0 else f"p{at}" for at, label in enumerate(labels.tolist())]
    found = class_measures(out, labels, NAMES, groups=groups)
    assert found.macro["auroc"].why == "a class is in too few groups"
    assert found.classes["nv"]["auroc"].interval is not None


def test_accuracy_varies_over_groups_where_there_are_some():
    """Of two patients the one is right and the other wrong: two draws give 0, 1/2, 1/2 or 1."""
    out = Output(torch.tensor([[0.9, 0.1]]).expand(40, 2), "lengths")
    labels = torch.tensor([0, 1]).repeat_interleave(20)
    found = class_measures(out, labels, ("a", "b"), groups=["p"] * 20 + ["q"] * 20).accuracy
    assert found == (0.5, (0.0, 1.0), None)
    # Each image its own group: as of images, whatever the classes.
    apart = class_measures(out, labels, ("a", "b"), groups=[str(at) for at in range(40)]).accuracy
    assert apart.interval == pytest.approx(wilson(20, 40), abs=0.03)
    # Two objects an image, of which both are found or one.
    both = torch.stack([labels * 0, labels + 1], 1)
    three = Output(torch.tensor([[0.9, 0.8, 0.1]]).expand(40, 3), "lengths")
    several = class_measures(three, both, NAMES, judged_by="top", groups=["p"] * 20 + ["q"] * 20)
    assert several.accuracy == found
    assert several.numbers()["balanced_accuracy"]["value"] is None


def test_many_classes_warn_of_nothing():
    # A warning ends any test.
    found = class_measures(*drawn(0, (3,) * 40), [str(k) for k in range(40)])
    assert found.macro["auroc"].interval is not None


@pytest.mark.slow
def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """docs/measures.md: nearly so where the smallest class has 30 images."""
    names, sizes = NAMES, (200, 60, 30)
    truth = macro_values(*drawn(10**6, [400 * size for size in sizes]))
    held = dict.fromkeys(MEASURES, 0)
    for seed in range(150):
        found = class_measures(*drawn(seed, sizes), names).macro
        for name in held:
            low, high = found[name].interval
            held[name] += low <= truth[name] <= high
    assert min(held.values()) >= 0.85 * 150, held
