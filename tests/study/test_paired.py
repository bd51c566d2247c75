"""Tests of two networks, against scipy, scikit-learn and what their definitions say."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import roc_auc_score

from torchcaps.study.paired import delong, holm, mcnemar, over_folds
from torchcaps.types import Output


def right(*words: str) -> list[torch.Tensor]:
    return [torch.tensor([each == "x" for each in word]) for word in words]


@pytest.mark.parametrize(
    ("alone", "other", "both"), [(5, 12, 30), (0, 7, 1), (4, 4, 0), (900, 700, 3)]
)
def test_mcnemar_is_the_binomial_test_of_what_one_alone_is_right_about(alone, other, both):
    first, second = right(
        "x" * alone + "." * other + "x" * both, "." * alone + "x" * (other + both)
    )
    found = mcnemar(first, second)
    assert found.alone == (alone, other)
    assert found.difference == pytest.approx((alone - other) / len(first))
    assert found.p == pytest.approx(stats.binomtest(alone, alone + other).pvalue, rel=1e-9)
    # As many groups as images are no groups.
    names = [f"g{at}" for at in range(len(first))]
    assert mcnemar(first, second, names).p == pytest.approx(found.p, rel=1e-9)


def test_mcnemar_of_networks_that_are_right_about_the_same_is_1():
    first, _ = right("xx..x", "")
    assert mcnemar(first, first).p == 1


@pytest.mark.parametrize("seed", range(5))
def test_mcnemar_by_groups_counts_every_way_in_which_groups_change_sides(seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 9, 40)
    first, second = (torch.tensor(rng.random(40) < share) for share in (0.8, 0.5))
    by_group = np.bincount(groups, first.int().numpy() - second.int().numpy())
    signs = np.array(list(itertools.product((-1, 1), repeat=len(by_group))))
    expected = (abs(signs @ by_group) >= abs(by_group.sum())).mean()
    found = mcnemar(first, second, [f"p{each}" for each in groups])
    assert found.p == pytest.approx(expected, rel=1e-12)


def test_mcnemar_on_paper():
    """Three images of one patient count as the one patient that they are: 2 · 1/2, and not 1/4."""
    first, second = right("xxx", "...")
    assert mcnemar(first, second).p == pytest.approx(0.25)
    assert mcnemar(first, second, ["a", "a", "a"]).p == 1


def drawn(seed, sizes=(9, 14), *, levels=None, shared=0.0, per_group=1):
    """Labels, groups and the scores of two networks, the first of which knows more."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    groups = np.arange(len(labels)) // per_group
    common = shared * rng.normal(size=(groups.max() + 1, 1))[groups]
    outs = []
    for better in (1.2, 0.6):
        scores = rng.normal(size=(len(labels), len(sizes))) + better * np.eye(len(sizes))[labels]
        # Only one of them goes by what the images of a group have in common.
        scores[:, :1] += common * (better > 1)
        if levels is not None:
            scores = np.round(scores * levels) / levels
        outs.append(Output(torch.tensor(scores), "independent_logits"))
    return *outs, torch.tensor(labels), [f"p{each}" for each in groups]


def pairs(score, own):
    """[positives, negatives]: 1 where the positive scores higher, 1/2 where equal."""
    difference = score[own][:, None] - score[~own][None]
    return (difference > 0) + 0.5 * (difference == 0)


def by_definition(first, second, labels, groups=None):
    """Difference of the macro AUROC and its error: structural components, class by class, added up
    by group [delong1988] [obuchowski1997]."""
    labels, (n, k) = labels.numpy(), first.scores.shape
    effect, difference = np.zeros(n), 0.0
    for sign, out in ((1, first), (-1, second)):
        scores = torch.sigmoid(out.scores).numpy()
        for j in range(k):
            own = labels == j
            wins = pairs(scores[:, j], own)
            difference += sign * wins.mean() / k
            effect[own] += sign * wins.mean(1) / k / own.sum()
            effect[~own] += sign * wins.mean(0) / k / (~own).sum()
    unit = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    sums = np.zeros((unit.max() + 1, k))
    for j in range(k):
        own = labels == j
        np.add.at(sums[:, j], unit[own], effect[own] - effect[own].mean())
    total, units = 0.0, len(sums)
    for a, b in itertools.product(range(k), repeat=2):
        of = len(set(unit[labels == a])) if a == b else units
        total += of / (of - 1) * (sums[:, a] * sums[:, b]).sum()
    return difference, total**0.5


@pytest.mark.parametrize("levels", [None, 2, 1], ids=["no ties", "ties", "many ties"])
@pytest.mark.parametrize("sizes", [(9, 14), (5, 20, 11)], ids=str)
@pytest.mark.parametrize("per_group", [None, 3])
def test_delong_is_what_its_definition_says(sizes, levels, per_group):
    *outs, labels, groups = drawn(0, sizes, levels=levels, per_group=per_group or 1)
    groups = groups if per_group else None
    difference, error = by_definition(*outs, labels, groups)
    found = delong(*outs, labels, groups)
    assert found.difference == pytest.approx(difference, abs=1e-12)
    assert found.interval == pytest.approx(
        (difference - 1.959964 * error, difference + 1.959964 * error), abs=1e-9
    )
    assert found.p == pytest.approx(2 * stats.norm.sf(abs(difference) / error), rel=1e-9)
    of_sklearn = [
        np.mean([roc_auc_score(labels == j, out.scores[:, j]) for j in range(len(sizes))])
        for out in outs
    ]
    assert found.difference == pytest.approx(of_sklearn[0] - of_sklearn[1], abs=1e-12)


def test_delong_of_two_classes_is_that_of_one_score():
    """S10 / m + S01 / n [delong1988], whose two classes see the same images from both sides."""
    first, second, labels, _ = drawn(3)
    one = [
        Output(torch.stack([-o.scores[:, 1], o.scores[:, 1]], 1), "logits") for o in (first, second)
    ]
    own = labels.numpy() == 1
    wins = [pairs(out.scores[:, 1].numpy(), own) for out in one]
    parts = [np.cov([each.mean(axis) for each in wins]) for axis in (1, 0)]
    total = sum(part / size for part, size in zip(parts, (own.sum(), (~own).sum()), strict=True))
    error = (total[0, 0] + total[1, 1] - 2 * total[0, 1]) ** 0.5
    difference = wins[0].mean() - wins[1].mean()
    found = delong(*one, labels)
    assert found.p == pytest.approx(2 * stats.norm.sf(abs(difference) / error), rel=1e-9)


@pytest.mark.parametrize("per_group", [1, 4])
def test_the_error_of_delong_is_how_much_the_difference_varies(per_group):
    """Images of a group look alike to the first network: one by one their error is too small."""
    found, blind = [], []
    for seed in range(150):
        *outs, labels, groups = drawn(seed, (40, 60), shared=1.5, per_group=per_group)
        found.append(delong(*outs, labels, groups if per_group > 1 else None))
        blind.append(delong(*outs, labels))
    spread = np.std([each.difference for each in found])
    errors = [np.mean([x.interval[1] - x.difference for x in of]) / 1.96 for of in (found, blind)]
    assert errors[0] == pytest.approx(spread, rel=0.15)
    if per_group > 1:
        assert errors[1] < 0.85 * spread


def test_delong_says_why_there_is_none():
    first, second, labels, _ = drawn(0)
    same = delong(first, first, labels)
    assert (same.difference, same.p, same.why) == (0, None, "no image makes a difference")
    alone = delong(first, second, labels, ["a"] * len(labels))
    assert (alone.p, alone.why) == (None, "a class is in one group alone")
    absent = delong(first, second, torch.zeros_like(labels))
    assert (absent.difference, absent.why) == (None, "a class has no image")


def test_folds_on_paper():
    """Differences 0.01, 0.02, 0.03: mean 0.02, variance 0.0001, times 1/3 + 1/2 [nadeau2003]."""
    found = over_folds([0.51, 0.62, 0.73], [0.5, 0.6, 0.7])
    error = (0.0001 * 5 / 6) ** 0.5
    assert found.difference == pytest.approx(0.02)
    assert found.p == pytest.approx(2 * stats.t.sf(0.02 / error, 2))
    half = stats.t.ppf(0.975, 2) * error
    assert found.interval == pytest.approx((0.02 - half, 0.02 + half))
    # The t-test of independent folds would be too sure.
    assert found.p > stats.ttest_1samp([0.01, 0.02, 0.03], 0).pvalue


def test_folds_without_a_measure_or_a_difference_say_so():
    lacking = over_folds([0.5, None, 0.7], [0.5, 0.6, 0.7])
    assert (lacking.p, lacking.why) == (None, "fold 2 does not show every class")
    even = over_folds([0.75, 0.5], [0.5, 0.25])
    assert (even.difference, even.p, even.why) == (0.25, None, "it is the same in all folds")
    assert over_folds([0.9, 1.0], [0.5, 0.1]).interval[1] == 1


def test_holm_on_paper():
    """The smallest times 3, the next times 2; none below one that is smaller [holm1979]."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.02, None, 0.9]) == [0.04, None, 0.9]
    assert holm([0.7, 0.6]) == [1, 1]
