"""Right or wrong, by the criterion of the data set, for every kind of score."""

import pytest
import torch

from torchcaps.train.answers import is_correct, named_classes
from torchcaps.types import Output


def output(scores, scores_are="lengths"):
    return Output(torch.tensor(scores), scores_are)


def test_one_object_is_right_where_its_score_is_the_highest():
    out = output([[0.1, 0.9], [0.8, 0.2]])
    assert is_correct(out, torch.tensor([1, 1]), judged_by="class").tolist() == [True, False]


# Two digits an image: the two longest capsules, in any order, however long.
def test_two_objects_are_right_where_the_two_highest_scores_are_theirs():
    out = output([[0.3, 0.2, 0.1], [0.3, 0.2, 0.1], [0.9, 0.8, 0.7]])
    labels = torch.tensor([[1, 0], [0, 2], [0, 1]])
    assert is_correct(out, labels, judged_by="top").tolist() == [True, False, True]


# One image, in probabilities that lengths are and that a sigmoid makes of logits: 0 and 1 are there
# (or 0 alone), whatever scores them is judged alike.
@pytest.mark.parametrize(
    ("probabilities", "by_top", "by_set", "alone_by_set"),
    [
        ([0.7, 0.6, 0.1], True, True, False),
        # The two highest are right, but one of them is improbable.
        ([0.7, 0.4, 0.1], True, False, True),
        ([0.4, 0.3, 0.1], True, False, False),
        # The two highest are right, and a third one is probable too.
        ([0.9, 0.8, 0.6], True, False, False),
        ([0.7, 0.1, 0.6], False, False, False),
    ],
)
@pytest.mark.parametrize("scores_are", ["lengths", "independent_logits"])
def test_lengths_and_independent_logits_are_judged_alike(
    scores_are, probabilities, by_top, by_set, alone_by_set
):
    scores = torch.tensor([probabilities])
    out = Output(scores if scores_are == "lengths" else scores.logit(), scores_are)
    both, alone = torch.tensor([[1, 0]]), torch.tensor([[0, 0]])
    assert is_correct(out, both, judged_by="top").item() == by_top
    assert is_correct(out, both, judged_by="set").item() == by_set
    assert is_correct(out, alone, judged_by="set").item() == alone_by_set


def test_a_set_is_named_without_the_number_of_digits():
    out = output([[0.6, 0.1, 0.5]])
    for labels in ([[0, 2]], [[0, 0]], [[1, 1]]):
        named = named_classes(out, torch.tensor(labels), judged_by="set")
        assert named.tolist() == [[True, False, True]]


# [tsai2020] B.2: an image of one digit and one of two, judged in one batch as alone.
@pytest.mark.parametrize(
    ("scores", "right"),
    [
        ([0.6, 0.1, 0.5], [True, False]),
        ([0.6, 0.1, 0.4], [False, True]),
        ([0.4, 0.6, 0.3], [False, False]),
        ([0.2, 0.1, 0.3], [False, False]),
    ],
)
def test_a_class_named_twice_is_there_once(scores, right):
    labels = torch.tensor([[0, 2], [0, 0]])
    assert is_correct(output([scores, scores]), labels, judged_by="set").tolist() == right
    alone = [is_correct(output([scores]), label[None], judged_by="set").item() for label in labels]
    assert alone == right


def test_a_softmax_can_name_two():
    out, labels = output([[2.0, 1.0, -3.0]], "logits"), torch.tensor([[0, 1]])
    assert is_correct(out, labels, judged_by="top").tolist() == [True]
