"""A sample has the shares of its classes exactly, and the same seed draws it again."""

from collections import Counter

import pytest
import torch

from torchcaps.data import ImageSet, MultiMnist, sample_of
from torchcaps.data.sample import classes_shown, counts_in_words


def sorted_set(*counts: int) -> ImageSet:
    """So many images of each class, class after class, as a folder holds them."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    names = tuple(f"class {k}" for k in range(len(counts)))
    return ImageSet("sorted", torch.zeros(len(labels), 1, 2, 2), labels, names)


@pytest.mark.parametrize(
    ("counts", "asked", "drawn"),
    [
        ((100, 100), 20, {0: 10, 1: 10}),
        # Exact shares 1.2, 2.4 and 8.4: one image is left over, for the larger remainder.
        ((10, 20, 70), 12, {0: 1, 1: 3, 2: 8}),
        # Exact shares 3.5, 0.7 and 2.8: the two left over go to 0.8 and 0.7.
        ((50, 10, 40), 7, {0: 3, 1: 1, 2: 3}),
        # Equal remainders: the lower number.
        ((5, 5, 5), 4, {0: 2, 1: 1, 2: 1}),
        # A class without images gets none.
        ((4, 0, 4), 4, {0: 2, 2: 2}),
    ],
)
def test_every_class_has_its_share(counts, asked, drawn) -> None:
    images = sorted_set(*counts)
    index = sample_of(images, asked)
    assert len(index) == len(set(index.tolist())) == asked
    assert Counter(images.labels[index].tolist()) == drawn


def test_the_seed_decides_images_and_order_and_nothing_else_does() -> None:
    images = sorted_set(50, 50)
    first = sample_of(images, 20, seed=1)
    torch.rand(3)
    assert torch.equal(sample_of(images, 20, seed=1), first)
    assert not torch.equal(sample_of(images, 20, seed=2), first)
    # Neither class comes first, and images of a class are not in the order of the set.
    assert images.labels[first].tolist() != sorted(images.labels[first].tolist())
    of_one = first[images.labels[first] == 0].tolist()
    assert of_one != sorted(of_one)


@pytest.mark.parametrize("asked", [6, 7, 5000])
def test_all_images_are_drawn_where_there_are_fewer(asked: int) -> None:
    index = sample_of(sorted_set(4, 2), asked)
    assert sorted(index.tolist()) == list(range(6))


def test_images_of_two_objects_are_sampled_evenly() -> None:
    images = MultiMnist(sorted_set(40, 40), shift=0)
    index = sample_of(images, 30)
    assert len(set(index.tolist())) == 30
    assert torch.equal(index, sample_of(images, 30))
    # Not the first thirty, which have the same first digit.
    assert int((index >= 40).sum()) > 5


def test_images_of_each_class_are_counted() -> None:
    assert classes_shown(torch.tensor([1, 1, 0]), ("a", "b", "c")) == {"a": 1, "b": 2, "c": 0}
    # A class named twice is there once.
    assert classes_shown(torch.tensor([[0, 1], [1, 1]]), ("a", "b")) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"a": 20, "b": 20}, "20 of each class"),
        ({"a": 1200, "b": 3}, "a: 1,200, b: 3"),
        ({str(k): 9 + k % 2 for k in range(21)}, "9 to 10 of each class"),
    ],
)
def test_counts_are_said_in_few_words(counts, words) -> None:
    assert counts_in_words(counts) == words
