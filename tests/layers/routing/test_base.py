"""What holds for every routing module: one layer, checked options, its own parameters."""

import math
import re

import pytest
import torch

from error_text import text_of
from layers.routing.bound import SIZE, assert_equal, bound
from torchcaps.errors import TorchcapsError
from torchcaps.layers import (
    DenseCapsules,
    DistanceRouting,
    DynamicRouting,
    EMRouting,
    InvertedRouting,
    Routing,
    SelfAttentionRouting,
    UniformRouting,
)
from torchcaps.layers.routing.gave import LAST_LINES
from torchcaps.types import Capsules, Routed, Step


def test_a_routing_belongs_to_one_layer() -> None:
    routing = DynamicRouting(prior="learned")
    DenseCapsules(n_in=3, d_in=2, n_out=2, d_out=2, routing=routing)
    with pytest.raises(TorchcapsError, match=r"^this DynamicRouting belongs to a layer already; "):
        DenseCapsules(n_in=5, d_in=2, n_out=2, d_out=2, routing=routing)


@pytest.mark.parametrize(
    "routing",
    [
        DynamicRouting(bias=True),
        DynamicRouting(prior="learned"),
        DistanceRouting(bias=True),
        DistanceRouting(scale="batch"),
        EMRouting(),
        InvertedRouting(),
        InvertedRouting(layer_norm=False, start="learned"),
        SelfAttentionRouting(),
        UniformRouting(bias=True),
    ],
)
def test_a_routing_without_a_layer_does_not_leave_out_its_parameters(routing) -> None:
    name = type(routing).__name__
    assert text_of(lambda: routing(torch.rand(3, *SIZE), torch.rand(3, SIZE[0]))) == (
        f"this {name} has parameters, but none were made, for it belongs to no layer that says how "
        f"many capsules there are; give it to a layer, DenseCapsules(routing={name}(…), …), or "
        f"call its bind(n_in=…, n_out=…, d_out=…)."
    )


@pytest.mark.parametrize(
    "routing",
    [
        DynamicRouting(),
        DistanceRouting(),
        InvertedRouting(layer_norm=False),
        SelfAttentionRouting(prior="zero"),
        UniformRouting(),
    ],
)
def test_a_routing_without_parameters_needs_no_layer(routing) -> None:
    votes, lengths = torch.rand(3, *SIZE), torch.rand(3, SIZE[0])
    found = routing(votes, lengths, keep="last")
    assert_equal(found, bound(routing)(votes, lengths, keep="last"))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: DynamicRouting(prior="learnt"),
            "prior='learnt' is unknown; did you mean 'learned'?",
        ),
        (
            lambda: DynamicRouting(squash="hintn"),
            "squash='hintn' is unknown; did you mean 'hinton'?",
        ),
        (lambda: DynamicRouting(detach="vote"), "detach='vote' is unknown; did you mean 'votes'?"),
        (lambda: DynamicRouting(iterations=0), "iterations counts the uniform first pass"),
        (lambda: EMRouting(lambda_=-0.5), "lambda_ must be a finite number from 0 up"),
        (lambda: EMRouting(variance_floor=math.inf), "variance_floor must be a finite number"),
        (lambda: InvertedRouting(lambda_=math.nan), "lambda_ must be a finite number from 0 up"),
        (
            lambda: InvertedRouting(start="zero"),
            "start='zero' is unknown; did you mean 'none'?",
        ),
        (
            lambda: UniformRouting(normalise="men"),
            "normalise='men' is unknown; did you mean 'mean'?",
        ),
    ],
)
def test_a_wrong_option_is_refused_when_it_is_given(make, text) -> None:
    with pytest.raises(TorchcapsError, match=f"^{re.escape(text)}"):
        make()


@pytest.mark.parametrize(
    ("routing", "parameters"),
    [
        (DynamicRouting(), {}),
        (DynamicRouting(prior="learned"), {"prior": (5, 4)}),
        (DynamicRouting(bias=True), {"bias": (4, 2)}),
        (DynamicRouting(prior="learned", bias=True), {"prior": (5, 4), "bias": (4, 2)}),
        (UniformRouting(), {}),
        (UniformRouting(bias=True), {"bias": (4, 2)}),
    ],
    ids=["dynamic", "prior", "bias", "prior-bias", "uniform", "uniform-bias"],
)
def test_parameters_exist_exactly_when_asked(routing, parameters):
    found = dict(bound(routing).named_parameters())
    assert {name: tuple(p.shape) for name, p in found.items()} == parameters
    starts = {"prior": 0.0, "bias": 0.1}
    for name, parameter in found.items():
        assert torch.equal(parameter, torch.full_like(parameter, starts[name]))


@pytest.mark.parametrize("make", [DynamicRouting, UniformRouting])
def test_without_a_bias_minus_x_gives_minus_y(make):
    votes = torch.randn(3, *SIZE)
    blind, seeing = bound(make()), bound(make(bias=True))
    assert torch.equal(blind(-votes, None).parents.pose, -blind(votes, None).parents.pose)
    assert torch.equal(
        blind(-votes, None).parents.activation, blind(votes, None).parents.activation
    )
    gap = seeing(-votes, None).parents.activation - seeing(votes, None).parents.activation
    assert gap.abs().max() > 0.01


class Loose(Routing):
    """A routing as somebody writes it at the first try: its forward gives a tensor."""

    def create_parameters(self, **_):
        pass

    def forward(self, votes, activation=None, *, keep="none"):
        return votes.mean(-3)


class NoKeep(Loose):
    def forward(self, votes, activation=None):
        return Routed(Capsules(votes.mean(-3)), ())


class Forgetful(Loose):
    """It keeps its steps under a word that nobody says."""

    def forward(self, votes, activation=None, *, keep="none"):
        pose = votes.mean(-3)
        parents = Capsules(pose, pose.norm(dim=-1))
        coupling = votes.new_full(votes.shape[:-1], 1 / votes.shape[-2])
        return Routed(parents, (Step(None, coupling, parents),) if keep == "all" else ())


class Odd(Loose):
    """Whatever of a good result is said otherwise."""

    def __init__(self, **parts):
        super().__init__()
        self.parts = parts

    def forward(self, votes, activation=None, *, keep="none"):
        pose = self.parts.get("pose", votes.mean(-3))
        parents = Capsules(pose, self.parts.get("activation", pose.norm(dim=-1)))
        coupling = self.parts.get("coupling", votes.new_ones(votes.shape[:-1]))
        step = self.parts.get("step", Step(None, coupling, parents))
        return Routed(self.parts.get("parents", parents), (step,))


ONE = Capsules(torch.ones(4, 3, 2))


def through(routing, keep="none"):
    layer = DenseCapsules(n_in=3, d_in=2, n_out=2, d_out=2, routing=routing)
    return layer(ONE, keep=keep)


@pytest.mark.parametrize(
    ("routing", "words"),
    [
        (Loose, "Loose.forward must return tc.Routed(parents, steps), but returned a Tensor; "),
        (NoKeep, "NoKeep.forward takes no `keep`, by which a network says what to record; "),
    ],
)
def test_a_routing_of_ones_own_is_told_what_forward_lacks(routing, words):
    assert text_of(lambda: through(routing())).startswith(words)


@pytest.mark.parametrize("keep", ["last", "steps"])
def test_a_routing_that_records_no_step_is_told(keep):
    assert through(Forgetful()).steps == ()
    assert text_of(lambda: through(Forgetful(), keep)) == (
        f"Forgetful.forward recorded no step for keep='{keep}'; return tc.Routed(parents, "
        f"(tc.Step(None, coupling, parents),))."
    )


@pytest.mark.parametrize("keep", ["none", "last", "steps"])
def test_what_fits_passes(keep):
    assert through(Odd(), keep).parents.activation.shape == (4, 2)
    assert through(Odd(activation=None), keep).parents.activation is None


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (
            {"parents": torch.ones(4, 2, 2)},
            "Odd.forward must return its parents as tc.Capsules, but returned a Tensor; end it "
            f"with: {LAST_LINES}.",
        ),
        (
            {"pose": torch.ones(4, 1, 2)},
            "Odd.forward should give poses [4, 2, 2] from votes [4, 3, 2, 2], one a parent, but "
            "gave [4, 1, 2]; sum the votes over the children, votes.sum(-3).",
        ),
        (
            {"activation": torch.ones(4, 2, 1)},
            "Odd.forward should give one activation a parent, [4, 2], but gave [4, 2, 1]; for the "
            "lengths of poses write pose.norm(dim=-1).",
        ),
        (
            {"step": (None, torch.ones(4, 3, 2), None)},
            "Odd.forward should record each step as tc.Step(None, coupling, parents), but recorded "
            "a tuple.",
        ),
        (
            {"coupling": torch.ones(3, 2)},
            "Odd.forward should record couplings [*batch, children, parents] = [4, 3, 2], but "
            "recorded [3, 2]; where they are the same for all images write "
            "coupling.expand(votes.shape[:-1]).",
        ),
        (
            {"coupling": None},
            "Odd.forward should record couplings [*batch, children, parents] = [4, 3, 2], but "
            "recorded NoneType; where they are the same for all images write "
            "coupling.expand(votes.shape[:-1]).",
        ),
    ],
)
def test_a_result_of_a_wrong_shape_names_the_class(parts, sentence):
    assert text_of(lambda: through(Odd(**parts), "last")) == sentence
