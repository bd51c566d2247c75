"""Shares of images: a tabled interval, the commonest answer, and a network that says one thing."""

import pytest
import torch

from torchcaps.analysis.shares import commonest, constant_answer, says_always, wilson

ABC = ("a", "b", "c")
# Wilson's interval as tabled by Newcombe, Statistics in Medicine 17 (1998), Table I, method 3
NEWCOMBE = [
    (81, 263, 0.2553, 0.3662),
    (15, 148, 0.0624, 0.1605),
    (0, 20, 0.0, 0.1611),
    (1, 29, 0.0061, 0.1718),
]


@pytest.mark.parametrize(
    ("right", "images", "low", "high"),
    # A sure network is not surely perfect: 1 / (1 + z² / n)
    [*NEWCOMBE, (10, 10, 1 / (1 + 1.959964**2 / 10), 1.0), (5, 10, 0.2366, 0.7634)],
)
def test_the_interval_of_a_share(right, images, low, high):
    assert wilson(right, images) == pytest.approx((low, high), abs=5e-5)


def test_the_commonest_class_is_the_line_to_beat():
    labels = torch.tensor([0] * 4 + [1] * 12 + [2] * 90)
    assert commonest(labels, ABC) == ("c", 90 / 106)
    # A class without images; and of two that are as common the first.
    assert commonest(torch.tensor([1, 1, 0, 0]), ABC) == ("a", 0.5)
    assert commonest(labels, ABC).numbers() == {"class": "c", "share": 90 / 106}


def test_where_objects_share_an_image_it_is_the_commonest_set():
    """In whatever order; a class that is laid over itself is there once, and nobody counts classes:
    b is in four of these five images."""
    labels = torch.tensor([[0, 1], [1, 0], [1, 1], [1, 2], [2, 2]])
    assert commonest(labels, ABC) == ("a and b", 2 / 5)
    assert commonest(torch.tensor([[2, 2], [1, 1]]), ABC) == ("b", 0.5)


@pytest.mark.parametrize(
    ("named", "images", "said"),
    [
        ([0, 5, 0], 5, "b"),
        ([1, 4, 0], 5, None),
        # Of one image nothing is always so.
        ([0, 1, 0], 1, None),
        # Of images of several objects.
        ([5, 0, 5], 5, "a and c"),
        ([0, 0, 0], 5, "no class"),
        ([5, 0, 4], 5, None),
    ],
)
def test_one_answer_for_all_images_is_constant(named, images, said):
    assert constant_answer(torch.tensor(named), images, ABC) == said


def test_what_is_said_of_it():
    assert says_always("benign") == "constant: it says 'benign' of every image"
