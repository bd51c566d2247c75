"""Distances of trees on paper, at their extremes, against loops, and in a sample."""

import pytest
import torch

from torchcaps.analysis import MeasureTreeDistance, tree_distance
from traces import even, in_batches, network


def distance(x, y, lengths_x=None, lengths_y=None):
    first, second = (
        network({"classes": torch.as_tensor([c])}, {"primary": [u]} if u is not None else None)
        for c, u in ((x, lengths_x), (y, lengths_y))
    )
    return tree_distance(first, second)["classes"].tolist()


def test_extremes():
    one, other = [[1.0, 0], [0, 1]], [[0.0, 1], [1, 0]]
    assert distance(one, one) == [0]
    assert distance(one, other) == [1]
    assert distance(even(1, 2, 2)[0].tolist(), even(1, 2, 2)[0].tolist()) == [0]
    # No child counts.
    assert distance(one, other, [0.0, 0.0], [0.0, 0.0]) == [0]


def test_on_paper():
    # The first child moves a quarter and weighs 0.75, the second moves wholly and weighs 0.25.
    x, y = [[0.75, 0.25], [1.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]
    assert distance(x, y, [1.0, 0.5], [0.5, 0.0]) == [pytest.approx(0.75 * 0.25 + 0.25)]


def test_rows_of_a_learned_prior_are_divided_by_their_sums():
    assert distance([[2.0, 0.0]], [[0.0, 0.5]]) == [1]
    assert distance([[2.0, 2.0]], [[0.5, 0.5]]) == [0]


def example(images=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    couplings = {
        "hidden": torch.rand(images, 5, 4, generator=generator),
        "classes": torch.rand(images, 4, 3, generator=generator),
    }
    return network(couplings, {"primary": torch.rand(images, 5, generator=generator)})


def test_loops_agree_whatever_the_order_of_capsules():
    first, second = example(), example(seed=1)
    found = tree_distance(first, second)["hidden"]
    (x, y) = (trace[0] for trace in (first, second))
    for image in range(12):
        total = weights = 0.0
        for child in range(5):
            rows = [each.routed.steps[0].coupling[image, child].tolist() for each in (x, y)]
            weight = sum(float(each.children.activation[image, child]) for each in (x, y)) / 2
            shares = [[c / sum(row) for c in row] for row in rows]
            total += weight * sum(abs(a - b) for a, b in zip(*shares, strict=True)) / 2
            weights += weight
        assert float(found[image]) == pytest.approx(total / weights, abs=1e-12)


def test_pairs_of_classes():
    def measured(labels, **options):
        return in_batches(MeasureTreeDistance(**options), example(), labels)

    some = measured(torch.arange(12) % 3, sample=6)
    assert (some.images, [row.name for row in some.layers]) == (6, ["hidden", "classes", "all"])
    one_class = measured(torch.zeros(12)).layers[0]
    assert one_class.same == one_class.random
    assert one_class.different is None
    all_different = measured(torch.arange(12)).layers[0]
    assert (all_different.same, all_different.different) == (None, all_different.random)
    unlabelled = measured(None).layers[0]
    assert (unlabelled.same, unlabelled.different) == (None, None)
