"""The sentences: networks made by hand must be called what they are."""

import dataclasses

import pytest
import torch

from torchcaps.analysis import capsule_activity, routing_dynamics
from torchcaps.errors import TorchcapsError
from torchcaps.report import Sentence, verdict
from traces import even, network, switching

ALIVE = Sentence("life", "No capsule is dead in any layer.", True)
CHOSEN = (
    "Capsules choose one parent: in the mean of each layer the favourite gets 100% of a child or "
    "more."
)


def said(couplings, lengths=None):
    trace = network(couplings, lengths)
    return verdict(routing_dynamics(trace), capsule_activity(trace))


def test_perfect_routing():
    assert said({"hidden": switching(4, 4), "classes": switching(4, 4, n_in=4)}) == [
        Sentence(
            "tree",
            "The tree is built anew for every image: dyr is 1.00 "
            "(0 is frozen, 1 is perfect routing).",
            True,
        ),
        Sentence("choice", CHOSEN, True),
        ALIVE,
    ]


def test_frozen_and_even():
    assert said({"hidden": even(4, 3, 4), "classes": even(4, 4, 4)}) == [
        Sentence(
            "tree",
            "The tree is frozen: every image gets the same couplings "
            "(dyr 0.00; 0 is frozen, 1 is perfect routing).",
            False,
        ),
        Sentence(
            "choice",
            "No capsule chooses a parent: every one splits itself evenly among all of them.",
            False,
        ),
        ALIVE,
    ]


def test_frozen_but_chosen():
    tree, choice, _ = said({"classes": switching(1, 4).repeat(3, 1, 1)})
    assert tree.text.startswith("The tree is frozen")
    assert choice.text == CHOSEN


def test_a_dead_layer():
    tree, _, life = said(
        {"hidden": switching(4, 4), "classes": even(4, 4, 2)}, {"hidden": torch.zeros(4, 4)}
    )
    assert tree == Sentence(
        "tree",
        "There is no routing to judge: no layer has a living child and two living parents.",
        False,
    )
    assert life == Sentence(
        "life",
        "Layer hidden is dead: all of its 4 capsules stay near zero, whatever the image "
        "(mean length at most 0.05, spread at most 0.05).",
        False,
    )


def test_nothing_good_is_said_of_a_tree_with_a_dead_layer():
    sentences = said(
        {name: switching(4, 4, n_in=4) for name in ("hidden_2", "hidden_3", "classes")},
        {"hidden_3": torch.zeros(4, 4)},
    )
    assert [each.is_good for each in sentences if each.about == "tree"] == [False]


def test_some_dead_capsules_are_counted():
    lengths = torch.full((4, 4), 0.5)
    lengths[:, 1:] = 0
    assert said({"hidden": switching(4, 4), "classes": even(4, 4, 2)}, {"hidden": lengths})[2:] == [
        Sentence("life", "In layer hidden, 3 of 4 capsules are dead.", False)
    ]


def test_depends_in_part():
    # 2 of 10 parents: dyr 0.33; perfect routing above
    couplings = {"hidden": switching(2, 10), "classes": switching(2, 2, n_in=10)}
    assert said(couplings)[0] == Sentence(
        "tree",
        "The tree depends on the image in part: dyr is 0.33 to 1.00, highest in classes "
        "(0 is frozen, 1 is perfect routing).",
        True,
    )


def test_hardly_depends():
    assert said({"classes": switching(2, 10)})[0] == Sentence(
        "tree",
        "The tree hardly depends on the image: dyr is 0.33 (0 is frozen, 1 is perfect routing).",
        False,
    )


@pytest.mark.parametrize(
    ("swing", "start"),
    [
        # dyr of one child that swings between 0.5 ± swing: 2 · swing
        (0.0249, "The tree is frozen"),
        (0.0251, "The tree hardly depends"),
        (0.2499, "The tree hardly depends"),
        (0.2501, "The tree depends on the image in part"),
        (0.4499, "The tree depends on the image in part"),
        (0.4501, "The tree is built anew"),
    ],
)
def test_borders_of_the_words(swing, start):
    coupling = [[[0.5 + swing, 0.5 - swing]], [[0.5 - swing, 0.5 + swing]]]
    assert said({"classes": coupling})[0].text.startswith(start)


def test_leaning_without_choosing():
    # The favourite of two gets 0.7 in the lower layer and 0.6 in the upper one.
    lower, upper = torch.tensor([0.7, 0.3]), torch.tensor([0.4, 0.6])
    couplings = {"hidden": lower.expand(2, 3, 2), "classes": upper.expand(2, 2, 2)}
    assert said(couplings)[1] == Sentence(
        "choice",
        "Capsules lean towards a parent without choosing it: in hidden, where they lean most, the "
        "favourite gets 70% of a child, where an even split gives 50%.",
        False,
    )


def test_no_capsules_at_all():
    assert verdict(None, None) == [
        Sentence("tree", "This network has no capsules, so there is no tree to read.", False)
    ]


def test_a_single_parent_is_no_choice():
    sentences = said({"hidden": switching(4, 4), "classes": torch.ones(4, 4, 1)})
    assert [each.text for each in sentences if each.about == "choice"] == [CHOSEN]
    assert said({"classes": torch.ones(4, 4, 1)})[1].text == (
        "No capsule has a choice: every layer has one parent."
    )


def test_hardly_a_favourite():
    # 0.27 of a child, where an even split gives 0.25
    nearly = torch.tensor([0.27, 0.25, 0.25, 0.23]).expand(3, 4, 4)
    assert said({"classes": nearly})[1].text == (
        "No capsule chooses a parent: even the strongest layer gives the favourite 27.0%, where an "
        "even split gives 25.0%."
    )


def test_one_class_breaks_no_tree():
    tree = said({"hidden": switching(4, 4), "classes": torch.ones(4, 4, 1)})[0]
    assert tree.text.startswith("The tree is built anew for every image: dyr is 1.00")


def test_one_living_parent_breaks_the_tree():
    lengths = torch.zeros(4, 4)
    lengths[:, 0] = 0.5
    tree = said(
        {"hidden": switching(4, 4), "classes": switching(4, 4, n_in=4)}, {"hidden": lengths}
    )[0]
    assert tree == Sentence(
        "tree",
        "The tree is broken at hidden: no child, or fewer than two parents, are alive there.",
        False,
    )


def test_nothing_is_said_of_a_network_that_came_apart():
    coupling = switching(4, 4)
    coupling[1, 0, 0] = float("nan")
    with pytest.raises(TorchcapsError, match=r"^layer classes must be finite"):
        said({"classes": coupling})
    with pytest.raises(TorchcapsError, match=r"^layer hidden must be finite"):
        said({"hidden": switching(4, 4)}, {"hidden": torch.full((4, 4), float("inf"))})


def test_attention_over_children_is_not_held_against_perfect_routing():
    """Each of ten parents attends to exactly one of a hundred children, another one for each image:
    no couplings of this kind change more, and their dyr is 0.33."""
    coupling = torch.eye(100).roll(0).view(1, 100, 100)[:, :, :10]
    coupling = torch.cat([coupling.roll(image, 1) for image in range(100)])
    (layer,) = network({"classes": coupling})
    trace = (dataclasses.replace(layer, normalised_over="children"),)
    dynamics = routing_dynamics(trace)
    assert dynamics.layers[0].dyr == pytest.approx(0.33, abs=0.005)
    (tree, *_) = verdict(dynamics, capsule_activity(trace))
    assert tree == Sentence(
        "tree",
        "The tree depends on the image: dyr is 0.33 (0 is frozen; how far it could go is not "
        "known, since couplings do not sum to one over the parents of a child).",
        True,
    )


def test_a_mean_over_children_is_not_said_of_each():
    """Nine children send 1.0 to their favourite and one sends 0.5: 95 % in the mean."""
    coupling = torch.tensor([1.0, 0.0]).repeat(3, 10, 1)
    coupling[:, 0] = 0.5
    assert said({"classes": coupling})[1].text == CHOSEN.replace("100%", "95%")


def attention(*of_parents):
    """What is said of parents that attend to their children so."""
    coupling = torch.tensor(of_parents).T.expand(3, -1, -1)
    (layer,) = network({"classes": coupling})
    trace = (dataclasses.replace(layer, normalised_over="children"),)
    return verdict(routing_dynamics(trace), capsule_activity(trace))[1]


def test_shares_of_the_attention_of_a_parent_are_not_called_shares_of_a_child():
    """Of four children two have a parent that leans to them: (0.7 + 0.7 + 0.1 + 0.1) / 4."""
    assert attention([0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1]) == Sentence(
        "choice",
        "Capsules lean towards a parent: in classes, where they lean most, the favourite gives 40% "
        "of its attention to a child, where an even split gives 25%.",
        False,
    )
    # (0.27 + 0.27 + 0.25 + 0.25) / 4
    assert attention([0.27, 0.23, 0.25, 0.25], [0.23, 0.27, 0.25, 0.25]) == Sentence(
        "choice",
        "No capsule chooses a parent: even in the strongest layer the favourite gives it 26.0% of "
        "its attention, where an even split gives 25.0%.",
        False,
    )
    # Both attend to the first child most, which tells none of them from the other.
    assert attention([0.7, 0.1, 0.1, 0.1], [0.7, 0.1, 0.1, 0.1]) == Sentence(
        "choice",
        "No capsule chooses a parent: every parent takes as much of it as the others.",
        False,
    )


def test_parents_that_each_attend_to_one_child_are_not_chosen_by_it():
    """Each of three children has the whole attention of a parent, and the first one of two."""
    assert attention(
        [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]
    ) == Sentence(
        "choice",
        "Capsules lean towards a parent: in classes, where they lean most, the favourite gives "
        "100% of its attention to a child, where an even split gives 33%.",
        False,
    )
