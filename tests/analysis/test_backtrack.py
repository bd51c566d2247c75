"""The tree of a class on paper, and where nothing leads to it."""

import torch

from error_text import text_of
from torchcaps.analysis import backtracked
from traces import even, network


def test_a_tree_of_two_layers_on_paper():
    # Children 0 and 1 choose hidden 0, child 2 chooses hidden 1; hidden 0 chooses class 2.
    hidden = torch.tensor([[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]])
    classes = torch.tensor([[[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]])
    trace = network({"hidden": hidden, "classes": classes})
    low, high = backtracked(trace, 2)
    assert high.tolist() == [[False, False, True], [False, False, False]]
    assert low.tolist() == [[True, False], [True, False], [False, False]]
    low, high = backtracked(trace, 0)
    assert high.nonzero().tolist() == [[1, 0]]
    assert low.nonzero().tolist() == [[2, 1]]


def test_an_even_split_leads_nowhere():
    assert not any(bool(edges.any()) for edges in backtracked(network({"c": even(1, 4, 3)}), 1))


def test_layers_that_do_not_lead_to_each_other_are_refused():
    trace = network({"skip": even(1, 4, 3), "classes": even(1, 5, 3)})
    said = text_of(lambda: backtracked(trace, 1))
    assert said == (
        "a tree needs layers that lead to each other, but one layer here has more or fewer "
        "parents than the next has children; DeepCaps, for example, joins two layers into one."
    )


def test_a_class_that_is_none_is_refused():
    said = text_of(lambda: backtracked(network({"classes": even(1, 4, 3)}), 3))
    assert said == (
        "the tree of a class begins at one of the 3 parents of classes, but predicted is 3."
    )
