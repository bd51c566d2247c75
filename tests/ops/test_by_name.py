"""Routing by name: the same parents as by the function of that name, on every backend."""

import inspect

import pytest
import torch

import torchcaps as tc
from error_text import text_of
from torchcaps.layers import ROUTINGS
from torchcaps.ops import fused, materialise, route
from torchcaps.ops.by_name import PLAIN
from torchcaps.types import Capsules, VoteMap, Window

# A routing without a line here is called with its defaults.
OPTIONS = {
    "distance": {"iterations": 2},
    "dynamic": {"iterations": 2, "squash": "exp"},
    "em": {"beta_a": torch.zeros(3), "beta_u": torch.ones(3), "iterations": 2},
    "inverted": {"iterations": 2},
    "uniform": {"normalise": "mean"},
}
WINDOW = Window((3, 3, 2), (2, 2), (1, 1))


def vote_map(window=None):
    torch.manual_seed(0)
    n_in = 8 if window else 18
    pose = torch.randn(2, 18, 4, dtype=torch.float64)
    weight = torch.randn(n_in, 3, 4, 4, dtype=torch.float64)
    return VoteMap(Capsules(pose, pose.norm(dim=-1).tanh()), weight, window=window)


def test_every_routing_of_layers_is_known_and_no_other():
    assert set(PLAIN) == set(ROUTINGS)


@pytest.mark.parametrize("window", [None, WINDOW], ids=["dense", "windows"])
@pytest.mark.parametrize("name", sorted(ROUTINGS))
def test_it_is_the_function_of_that_name(name, window):
    votes_of, options = vote_map(window), OPTIONS.get(name, {})
    votes, activation = materialise(votes_of), votes_of.children.activation
    if window is not None:
        activation = activation[:, window.child_id()]
    function = getattr(tc.ops, f"{name}_routing")
    taken = inspect.signature(function).parameters.get("activation")
    given = {"activation": activation} if taken and taken.default is taken.empty else {}
    expected = function(votes, **given, keep="last", **options)
    unstored = ("fused", "native") if name in fused.ROUTINGS else ()
    for backend in ("auto", "plain", *unstored):
        found = route(votes_of, name, backend=backend, keep="last", **options)
        assert torch.allclose(found.parents.pose, expected.parents.pose)
        assert torch.allclose(found.steps[-1].coupling, expected.steps[-1].coupling)


def test_plain_stores_the_votes_and_fused_does_not(monkeypatch):
    stored = []
    monkeypatch.setattr(
        "torchcaps.ops.by_name.materialise", lambda m: stored.append(m) or materialise(m)
    )
    for backend in ("plain", "fused", "auto"):
        route(vote_map(), backend=backend)
    # "auto" stores the few votes that there are.
    assert len(stored) == 2


@pytest.mark.parametrize("options", [{"lambda_": 0.1}, {"beta_a": None, "beta_u": None}], ids=str)
def test_inverted_routing_without_activations_takes_their_options(options, monkeypatch):
    monkeypatch.setattr("torchcaps.ops.backend.FUSED_FROM", 0)
    monkeypatch.setattr("torchcaps.ops.backend.LANES_FROM", 0)
    found, plain = (route(vote_map(), "inverted", **each) for each in (options, {}))
    assert torch.allclose(found.parents.pose, plain.parents.pose)
    with pytest.raises(tc.TorchcapsError, match="has no fused form with these options"):
        route(vote_map(), "inverted", backend="fused", **options)


def test_inverted_routing_with_activations_falls_back():
    options = {"beta_a": torch.zeros(3).double(), "beta_u": torch.zeros(3).double()}
    found = route(vote_map(), "inverted", **options)
    assert found.parents.activation.shape == (2, 3)
    assert text_of(lambda: route(vote_map(), "inverted", backend="fused", **options)) == (
        'inverted routing has no fused form with these options; use backend="auto", which falls '
        "back to the plain one."
    )


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: route(vote_map(), "dynmic"),
            "routing='dynmic' is unknown; did you mean 'dynamic'?",
        ),
        (
            lambda: route(vote_map(), backend="cuda"),
            "backend='cuda' is a device, and routing runs on the device of its tensors; leave "
            'backend out, or use backend="auto".',
        ),
        (
            lambda: route(vote_map(), backend="fussed"),
            "backend='fussed' is unknown; did you mean 'fused'? known: auto, fused, native, plain.",
        ),
        # No name of its options is near enough for a guess.
        (
            lambda: route(vote_map(), "uniform", iterations=2),
            "uniform routing has no option iterations; known: bias, couple, keep, normalise, "
            "squash.",
        ),
        (
            lambda: route(vote_map(), iteration=3),
            "dynamic routing has no option iteration; did you mean 'iterations'?",
        ),
        (
            lambda: route(vote_map(), "em", activation=torch.ones(18)),
            "route takes no activation: it stands in the vote map, VoteMap(Capsules(pose, "
            "activation), weight).",
        ),
    ],
)
def test_bad_input_is_a_sentence(call, sentence):
    assert text_of(call).startswith(sentence)


POSE, WEIGHT = torch.rand(2, 6, 4), torch.rand(6, 3, 5, 4)
OF_WINDOWS = (
    "a window must be Window(child_grid=(height, width, types), kernel=(height, width), "
    "stride=(height, width)) of whole numbers from 1, but came as "
)


@pytest.mark.parametrize("backend", ["auto", "plain", "fused", "native"])
@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (
            {"children": POSE},
            "the children of a VoteMap must be Capsules, but came as a Tensor; wrap the poses: "
            "VoteMap(Capsules(pose), weight).",
        ),
        (
            {"children": Capsules("pose")},
            "pose must be a torch.Tensor, but came as str; make one with torch.as_tensor(pose).",
        ),
        (
            {"weight": None},
            "weight must be a torch.Tensor, but came as NoneType; make one with "
            "torch.as_tensor(weight).",
        ),
        (
            {"children": Capsules(POSE[0, 0])},
            "votes need child poses [*batch, child, pose] and weights [child, parent, out, in] "
            "(without the child axis when shared by all), but came with shapes [4] and "
            "[6, 3, 5, 4].",
        ),
        (
            {"children": Capsules(POSE, "lengths"), "window": Window((1, 3, 2), (1, 3), (1, 1))},
            "activation must be a torch.Tensor, but came as str; make one with "
            "torch.as_tensor(activation).",
        ),
        (
            {"children": Capsules(POSE, POSE[:, :4, 0])},
            "activation must broadcast to [*batch, child] = [2, 6], but has shape [2, 4]; was it "
            "made for a layer of another size?",
        ),
        ({"window": "all"}, OF_WINDOWS + "'all'."),
        (
            {"window": Window((1, 3, 2), (1, 3), (0, 1))},
            OF_WINDOWS + "Window(child_grid=(1, 3, 2), kernel=(1, 3), stride=(0, 1)).",
        ),
        (
            {"window": Window((1, 3, 2), 3, 1)},
            OF_WINDOWS + "Window(child_grid=(1, 3, 2), kernel=3, stride=1).",
        ),
        (
            {"window": Window((1, 3, 2), (2, 2), (1, 1))},
            "a window of (2, 2) positions looks at a grid (height, width, types) that is at least "
            "as large and holds every child, but the grid is (1, 3, 2), and 6 children came; was "
            "it made for images of another size?",
        ),
        (
            {"window": Window((2, 2, 2), (2, 2), (1, 1))},
            "a window of (2, 2) positions looks at a grid (height, width, types) that is at least "
            "as large and holds every child, but the grid is (2, 2, 2), and 6 children came; was "
            "it made for images of another size?",
        ),
    ],
)
def test_a_vote_map_of_other_things_is_a_sentence(parts, sentence, backend):
    made = VoteMap(Capsules(POSE), WEIGHT)._replace(**parts)
    assert text_of(lambda: route(made, "distance", backend=backend)) == sentence


def test_what_em_routing_needs_is_named():
    made = VoteMap(Capsules(POSE, POSE[..., 0]), WEIGHT)
    assert text_of(lambda: route(made, "em", beta_a=torch.zeros(3))) == (
        "em routing needs beta_u, a number for each parent; give it: route(vote_map, 'em', "
        "beta_u=…)."
    )


def test_votes_that_are_made_already_are_sent_to_their_function() -> None:
    assert text_of(lambda: route(torch.rand(2, 4, 3, 5), "dynamic")) == (
        "route takes a VoteMap(children, weight), but got a Tensor; votes that are made already go "
        "to ops.dynamic_routing(votes) and its like."
    )


def test_a_routing_of_ones_own_is_told_where_it_goes():
    vote_map = VoteMap(Capsules(torch.rand(2, 6, 4)), torch.rand(6, 3, 5, 4))
    assert text_of(lambda: route(vote_map, "anneal")).endswith(
        "One of your own takes the votes, my_routing(ops.materialise(vote_map)), or is given to a "
        "layer, layers.DenseCapsules(routing=MyRouting(), …)."
    )
