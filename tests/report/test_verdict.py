"""The sentences: networks made by hand must be called what they are."""

import dataclasses

import pytest
import torch

from torchcaps.analysis import capsule_activity, routing_dynamics
from torchcaps.errors import TorchcapsError
from torchcaps.report import Sentence, verdict
from traces import even, network, switching


def tree(text, *, is_good=False):
    return Sentence("tree", text, is_good)


def choice(text, *, is_good=False):
    return Sentence("choice", text, is_good)


def life(text, *, is_good=False):
    return Sentence("life", text, is_good)


ALIVE = life("No capsule is dead in any layer.", is_good=True)
CHOSEN = choice(
    "Capsules choose one parent: in the mean of each layer the favourite gets all of a child.",
    is_good=True,
)
SCALE = "(0 is frozen, 1 is perfect routing)."
ANEW = tree(
    f"The tree is built anew for every image: couplings change by 1.00 {SCALE}", is_good=True
)
FROZEN = tree(
    "The tree is frozen: every image gets the same couplings (they change by 0.00; 0 is frozen, "
    "1 is perfect routing)."
)
BROKEN = "no child, or fewer than two parents, are alive there."


def all_shares(*shares, n_in=4, images=3):
    """The same couplings of every child in every image."""
    return torch.tensor(shares).expand(images, n_in, -1)


def alive(count, n=4):
    """Lengths of which so many capsules are not zero."""
    return (torch.arange(n) < count).float().expand(4, n) * 0.5


def half_of_one_child():
    """Nine children send 1.0 to their favourite and one sends 0.5: 95 % in the mean."""
    coupling = torch.tensor([1.0, 0.0]).repeat(3, 10, 1)
    coupling[:, 0] = 0.5
    return coupling


SAID = {
    "perfect routing": (
        {"hidden": switching(4, 4), "classes": switching(4, 4, n_in=4)},
        *({}, [ANEW, CHOSEN, ALIVE]),
    ),
    "frozen and even": (
        {"hidden": even(4, 3, 4), "classes": even(4, 4, 4)},
        {},
        [
            FROZEN,
            choice(
                "No capsule chooses a parent: every one splits itself evenly among all of them."
            ),
            ALIVE,
        ],
    ),
    "frozen but chosen": ({"classes": switching(1, 4).repeat(3, 1, 1)}, {}, [FROZEN, CHOSEN]),
    "a dead layer": (
        {"hidden": switching(4, 4), "classes": even(4, 4, 2)},
        {"hidden": alive(0)},
        [
            tree(
                "There is no routing to judge: no layer has a living child and two living parents."
            ),
            life(
                "Layer hidden is dead: all of its 4 capsules stay near zero, whatever the image "
                "(mean length at most 0.05, spread at most 0.05)."
            ),
        ],
    ),
    "nothing good of a tree with a dead layer": (
        {name: switching(4, 4, n_in=4) for name in ("hidden_2", "hidden_3", "classes")},
        {"hidden_3": alive(0)},
        [tree(f"The tree is broken at hidden_3 and classes: {BROKEN}")],
    ),
    "some dead capsules": (
        {"hidden": switching(4, 4), "classes": even(4, 4, 2)},
        {"hidden": alive(1)},
        [life("In layer hidden, 3 of 4 capsules are dead.")],
    ),
    # 2 of 10 parents: dyr 0.33; perfect routing above.
    "in part": (
        {"hidden": switching(2, 10), "classes": switching(2, 2, n_in=10)},
        {},
        [
            tree(
                "The tree depends on the image in part: couplings change by 0.33 to 1.00, "
                f"most in classes {SCALE}",
                is_good=True,
            )
        ],
    ),
    "hardly": (
        {"classes": switching(2, 26)},
        {},
        [tree(f"The tree hardly depends on the image: couplings change by 0.20 {SCALE}")],
    ),
    "leaning without choosing": (
        {"hidden": all_shares(0.7, 0.3), "classes": all_shares(0.4, 0.6, n_in=2)},
        {},
        [
            choice(
                "Capsules lean towards a parent without choosing it: in hidden, where they lean "
                "most, the favourite gets 70% of a child, where an even split gives 50%."
            )
        ],
    ),
    "a single parent is no choice": (
        {"hidden": switching(4, 4), "classes": torch.ones(4, 4, 1)},
        # Nor does it break a tree.
        *({}, [ANEW, CHOSEN]),
    ),
    "no parent to choose": (
        {"classes": torch.ones(4, 4, 1)},
        *({}, [choice("No capsule has a choice: every layer has one parent.")]),
    ),
    "hardly a favourite": (
        {"classes": all_shares(0.27, 0.25, 0.25, 0.23)},
        {},
        [
            choice(
                "No capsule chooses a parent: even the strongest layer gives the favourite 27.0%, "
                "where an even split gives 25.0%."
            )
        ],
    ),
    "one living parent": (
        {"hidden": switching(4, 4), "classes": switching(4, 4, n_in=4)},
        {"hidden": alive(1)},
        [tree(f"The tree is broken at hidden: {BROKEN}")],
    ),
    "a mean over children is not said of each": (
        {"classes": half_of_one_child()},
        *(
            {},
            [CHOSEN._replace(text=CHOSEN.text.replace("all of a child", "95% of a child or more"))],
        ),
    ),
}


def said(couplings, lengths=None):
    trace = network(couplings, lengths)
    return verdict(routing_dynamics(trace), capsule_activity(trace))


@pytest.mark.parametrize(("couplings", "lengths", "expected"), SAID.values(), ids=SAID)
def test_a_network_is_called_what_it_is(couplings, lengths, expected):
    about = {sentence.about for sentence in expected}
    assert [each for each in said(couplings, lengths) if each.about in about] == expected


def test_no_capsules_at_all():
    assert verdict(None, None) == [
        tree("This network has no capsules, so there is no tree to read.")
    ]


@pytest.mark.parametrize(
    ("swing", "start"),
    [
        # dyr of one child that swings between 0.5 ± swing: 2 · swing
        (0.0249, "The tree is frozen"),
        (0.0251, "The tree hardly depends"),
        (0.1249, "The tree hardly depends"),
        (0.1251, "The tree depends on the image in part"),
        (0.4499, "The tree depends on the image in part"),
        (0.4501, "The tree is built anew"),
    ],
)
def test_borders_of_the_words(swing, start):
    coupling = [[[0.5 + swing, 0.5 - swing]], [[0.5 - swing, 0.5 + swing]]]
    assert said({"classes": coupling})[0].text.startswith(start)


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
    assert verdict(dynamics, capsule_activity(trace))[0] == tree(
        "The tree depends on the image: couplings change by 0.33 (0 is frozen; how far it could go "
        "is not known, since they do not sum to one over the parents of a child).",
        is_good=True,
    )


ATTENDED = [
    # Of four children two have a parent that leans to them: (0.7 + 0.7 + 0.1 + 0.1) / 4.
    (
        [[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1]],
        "Capsules lean towards a parent: in classes, where they lean most, the favourite gives 40% "
        "of its attention to a child, where an even split gives 25%.",
    ),
    # (0.27 + 0.27 + 0.25 + 0.25) / 4
    (
        [[0.27, 0.23, 0.25, 0.25], [0.23, 0.27, 0.25, 0.25]],
        "No capsule chooses a parent: even in the strongest layer the favourite gives it 26.0% of "
        "its attention, where an even split gives 25.0%.",
    ),
    # Both attend to the first child most, which tells none of them from the other.
    (
        [[0.7, 0.1, 0.1, 0.1], [0.7, 0.1, 0.1, 0.1]],
        "No capsule chooses a parent: every parent takes as much of it as the others.",
    ),
    # Each of three children has the whole attention of a parent, and the first one of two.
    (
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]],
        "Capsules lean towards a parent: in classes, where they lean most, the favourite gives "
        "100% of its attention to a child, where an even split gives 33%.",
    ),
]


@pytest.mark.parametrize(("of_parents", "text"), ATTENDED)
def test_shares_of_the_attention_of_a_parent_are_not_called_shares_of_a_child(of_parents, text):
    coupling = torch.tensor(of_parents).T.expand(3, -1, -1)
    (layer,) = network({"classes": coupling})
    trace = (dataclasses.replace(layer, normalised_over="children"),)
    assert verdict(routing_dynamics(trace), capsule_activity(trace))[1] == choice(text)
