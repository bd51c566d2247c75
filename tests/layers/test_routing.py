"""Routings as modules: which parameters they own, what these start at, and which op they call."""

import re

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.layers import ROUTINGS, DenseCapsules, DynamicRouting, UniformRouting
from torchcaps.layers.routing import as_routing
from torchcaps.ops import dynamic_routing, uniform_routing

N_IN, N_OUT, D = SIZE = (5, 4, 2)


def bound(routing):
    routing.bind(n_in=N_IN, n_out=N_OUT, d_out=D)
    return routing


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


def test_dynamic_hands_every_option_to_its_op():
    votes = torch.randn(3, *SIZE)
    given = {"iterations": 2, "leaky": True, "squash": "exp", "detach": "votes"}
    mine = bound(DynamicRouting(**given))(votes, None, keep="steps")
    op = dynamic_routing(votes, **given, keep="steps")
    for a, b in zip(mine.steps, op.steps, strict=True):
        assert torch.equal(a.coupling, b.coupling)
    assert torch.equal(mine.parents.pose, op.parents.pose)
    for changed in ({"iterations": 3}, {"leaky": False}, {"squash": "hinton"}):
        other = dynamic_routing(votes, **given | changed)
        assert not torch.equal(mine.parents.pose, other.parents.pose)


@pytest.mark.parametrize(
    ("normalise", "axis", "over"), [("softmax", -1, "parents"), ("mean", -2, "children")]
)
def test_uniform_couplings_sum_to_one_over_what_it_declares(normalise, axis, over):
    votes = torch.randn(3, *SIZE)
    routing = bound(UniformRouting(normalise=normalise, squash="exp"))
    routed = routing(votes, None, keep="last")
    total = routed.steps[0].coupling.sum(axis)
    torch.testing.assert_close(total, torch.ones_like(total))
    assert routing.normalised_over == over
    expected = uniform_routing(votes, normalise=normalise, squash="exp").parents.pose
    assert torch.equal(routed.parents.pose, expected)


def test_a_prior_changes_nothing_before_training():
    votes = torch.randn(3, *SIZE)
    learned = bound(DynamicRouting(prior="learned"))(votes, None)
    zero = bound(DynamicRouting(prior="zero"))(votes, None)
    assert torch.equal(learned.parents.pose, zero.parents.pose)


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


def test_names_and_classes():
    for name, kind in ROUTINGS.items():
        assert kind.__name__.lower() == f"{name}routing".replace("_", "")
    assert isinstance(as_routing("uniform"), UniformRouting)
    mine = DynamicRouting(iterations=7)
    assert as_routing(mine) is mine


@pytest.mark.parametrize(("name", "hint"), [("dinamic", "did you mean 'dynamic'? "), ("zzz", "")])
def test_unknown_name(name, hint):
    expected = f"routing={name!r} is unknown; {hint}known: {', '.join(sorted(ROUTINGS))}."
    with pytest.raises(TorchcapsError, match=f"^{re.escape(expected)}$"):
        as_routing(name)


def test_a_routing_belongs_to_one_layer() -> None:
    routing = DynamicRouting(prior="learned")
    DenseCapsules(n_in=3, d_in=2, n_out=2, d_out=2, routing=routing)
    with pytest.raises(TorchcapsError, match=r"^this DynamicRouting belongs to a layer already; "):
        DenseCapsules(n_in=5, d_in=2, n_out=2, d_out=2, routing=routing)


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
        (
            lambda: UniformRouting(normalise="men"),
            "normalise='men' is unknown; did you mean 'mean'?",
        ),
    ],
)
def test_a_wrong_option_is_refused_when_it_is_given(make, text) -> None:
    with pytest.raises(TorchcapsError, match=f"^{re.escape(text)}"):
        make()
