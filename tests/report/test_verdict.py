"""The sentences: networks made by hand must be called what they are, in verdicts.toml."""

from dataclasses import replace

import pytest
import torch

from tables import cases_beside, worked_out
from torchcaps.analysis import capsule_activity, routing_dynamics
from torchcaps.errors import TorchcapsError
from torchcaps.report import Sentence, verdict
from traces import even, network, switching


def all_shares(*shares, n_in=4, images=3):
    """The same couplings of every child in every image."""
    return torch.tensor(shares).expand(images, n_in, -1)


def alive(count, n=4):
    """Lengths of which so many capsules are not zero."""
    return (torch.arange(n) < count).float().expand(4, n) * 0.5


def of_parents(shares):
    """Couplings by what each parent gives to its children, the same in three images."""
    return torch.tensor(shares).T.expand(3, -1, -1)


NAMES = {"torch": torch, "even": even, "switching": switching}
NAMES |= {"all_shares": all_shares, "alive": alive, "of_parents": of_parents}


def said(couplings, lengths=None, over="parents"):
    trace = network(couplings, lengths)
    trace = tuple(replace(layer, normalised_over=over) for layer in trace)
    return verdict(routing_dynamics(trace), capsule_activity(trace))


@pytest.mark.parametrize("case", cases_beside(__file__, "verdicts.toml"))
def test_a_network_is_called_what_it_is(case):
    couplings, lengths = (worked_out(case.get(x, {}), NAMES) for x in ("couplings", "lengths"))
    found = said(couplings, lengths, case.get("normalised_over", "parents"))
    good = case.get("good", [])
    about = [each for each in ("tree", "choice", "life") if each in case]
    assert about
    assert [each for each in found if each.about in about] == [
        Sentence(each, case[each], each in good) for each in about
    ]


def test_no_capsules_at_all():
    text = "This network has no capsules, so there is no tree to read."
    assert verdict(None, None) == [Sentence("tree", text, False)]


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
