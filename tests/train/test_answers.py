"""Right or wrong, for one object an image and for several."""

import pytest
import torch

from error_text import text_of
from torchcaps.train.answers import is_correct
from torchcaps.types import Output


def output(scores, scores_are="lengths"):
    return Output(torch.tensor(scores), scores_are)


def test_one_object_is_right_where_its_score_is_the_highest():
    out = output([[0.1, 0.9], [0.8, 0.2]])
    assert is_correct(out, torch.tensor([1, 1])).tolist() == [True, False]


# Two digits an image: the two longest capsules, in any order, however long.
def test_two_objects_are_right_where_the_two_highest_scores_are_theirs():
    out = output([[0.3, 0.2, 0.1], [0.3, 0.2, 0.1], [0.9, 0.8, 0.7]])
    labels = torch.tensor([[1, 0], [0, 2], [0, 1]])
    assert is_correct(out, labels).tolist() == [True, False, True]


# [tsai2020] B.2: where an image may hold fewer, the classes said must be those there. In one batch
# with an image of two, which is judged by its two longest.
@pytest.mark.parametrize(
    ("scores", "right"),
    [
        ([0.6, 0.1, 0.5], [True, False]),
        ([0.6, 0.1, 0.4], [True, True]),
        ([0.4, 0.6, 0.3], [False, False]),
        ([0.2, 0.1, 0.3], [True, False]),
    ],
)
def test_a_class_named_twice_is_there_once(scores, right):
    labels = torch.tensor([[0, 2], [0, 0]])
    out = output([scores, scores])
    assert is_correct(out, labels).tolist() == right
    alone = [is_correct(output([scores]), label[None]).item() for label in labels]
    assert alone == right


def test_independent_classes_are_each_judged_at_one_half():
    # The two highest logits are right, but one of them is below nought.
    out = output([[2.0, -0.1, -3.0], [2.0, 0.1, -3.0]], "independent_logits")
    assert is_correct(out, torch.tensor([[0, 1], [0, 1]])).tolist() == [False, True]


def test_a_softmax_can_say_that_there_are_two_but_not_how_many():
    out = output([[2.0, 1.0, -3.0]], "logits")
    assert is_correct(out, torch.tensor([[0, 1]])).tolist() == [True]
    assert text_of(lambda: is_correct(out, torch.tensor([[0, 0]]))) == (
        "a network that scores classes by a softmax cannot say how many are there, but these "
        "images show different numbers of objects; take one that scores by lengths or by "
        "independent logits."
    )
