"""EM routing: its laws, and windows that compete; numbers on paper are in on_paper.toml."""

import itertools
from functools import partial

import pytest
import torch

from ops import test_routing_laws as laws
from ops.random_votes import random_votes
from torchcaps.types import Window

drawn, route = partial(laws.drawn, "em"), partial(laws.route, "em")
VARIANTS = ["paper", "official", "gritzman"]
FLOOR = {"paper": 1e-4, "official": 5e-4, "gritzman": 1e-9}
OVERLAPPING = Window((4, 5, 2), (3, 2), (1, 2))
DISJOINT = Window((5, 5, 2), (2, 2), (2, 2))  # the last row and column are in no window


def assert_near(ours, theirs, error=1e-12):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=error)


OF_CHILDREN = ("votes", "activation")


def e_step(arguments, step, variant):
    """Couplings after one step: the posterior of a mixture of Gaussians, by torch."""
    votes, (mean, activation) = arguments["votes"], step.parents
    r = step.coupling * arguments["activation"].unsqueeze(-1)
    mean = mean.unsqueeze(-3)
    spread = (r.unsqueeze(-1) * (votes - mean) ** 2).sum(-3, keepdim=True)
    variance = spread / r.sum(-2)[..., None, :, None] + FLOOR[variant]
    likelihood = torch.distributions.Normal(mean, variance.sqrt()).log_prob(votes).sum(-1)
    return activation.unsqueeze(-2) * likelihood.exp()


@pytest.mark.parametrize("variant", VARIANTS)
def test_e_step_is_the_posterior_of_a_mixture(variant):
    arguments = drawn((2, 7, 3, 2), options={"variant": variant})
    steps = route(arguments, variant=variant, lambda_=1.0, keep="steps").steps
    for before, after in itertools.pairwise(steps):
        joint = e_step(arguments, before, variant)
        assert_near(after.coupling, joint / joint.sum(-1, keepdim=True), 1e-10)
        assert (after.coupling - 1 / 3).abs().max() > 0.1


@pytest.mark.parametrize("variant", VARIANTS)
def test_e_step_of_all_windows_is_the_posterior_over_them(variant):
    child_id = OVERLAPPING.child_id()
    arguments = drawn((2, *child_id.shape, 3, 2), options={"variant": variant})
    steps = route(
        arguments, variant=variant, compete="all", child_id=child_id, lambda_=1.0, keep="steps"
    ).steps
    joint = e_step(arguments, steps[0], variant)
    for child in child_id.unique():
        seen = child_id == child
        posterior = joint[:, seen] / joint[:, seen].sum((-2, -1), keepdim=True)
        assert_near(steps[1].coupling[:, seen], posterior, 1e-10)


@pytest.mark.parametrize("variant", ["paper", "gritzman"])
def test_a_shift_of_all_votes_of_a_parent_shifts_its_pose_alone(variant):
    arguments, shift = drawn((2, 7, 3, 4)), random_votes(3, 4)
    moved = arguments | {"votes": arguments["votes"] + shift}
    options = {"variant": variant, "lambda_": 1.0, "keep": "steps"}
    before, after = route(arguments, **options), route(moved, **options)
    for a, b in zip(before.steps, after.steps, strict=True):
        assert_near(b.coupling, a.coupling)
        assert_near(b.parents.activation, a.parents.activation)
        assert_near(b.parents.pose, a.parents.pose + shift)


def test_gritzman_is_the_paper_at_a_hundred_children_a_parent():
    arguments = drawn((200, 2, 3))
    options = {"variance_floor": 1e-4, "keep": "last"}
    paper, gritzman = (route(arguments, variant=v, **options) for v in ("paper", "gritzman"))
    assert_near(gritzman, paper)


def test_every_child_twice_costs_gritzman_nothing():
    arguments = drawn((4, 3, 2))
    twice = arguments | {name: arguments[name].repeat_interleave(2, 0) for name in OF_CHILDREN}
    for variant, costs_nothing in (("paper", False), ("gritzman", True)):
        options = {"variant": variant, "lambda_": 0.1, "iterations": 2}
        once, more = (route(x, **options).parents.activation for x in (arguments, twice))
        assert ((once - more).abs().max() < 1e-12) == costs_nothing


def test_a_child_without_activation_does_not_count():
    arguments = drawn((6, 3, 4))
    arguments["activation"][2] = 0
    kept = torch.tensor([0, 1, 3, 4, 5])
    others = arguments | {name: arguments[name][kept] for name in OF_CHILDREN}
    assert_near(list(route(arguments).parents), list(route(others).parents), 1e-10)


@pytest.mark.parametrize("variant", VARIANTS)
def test_windows_without_common_children_route_alone(variant):
    child_id = DISJOINT.child_id()
    arguments = drawn((2, *child_id.shape, 3, 2), options={"variant": variant})
    options = {"variant": variant, "lambda_": 1.0, "keep": "steps"}
    every = route(arguments, compete="all", child_id=child_id, **options)
    alone = route(arguments, **options)
    assert_near(every, alone)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_child_of_many_windows_has_one_mass(variant):
    child_id = OVERLAPPING.child_id()
    arguments = drawn((2, *child_id.shape, 3, 2), options={"variant": variant})
    steps = route(arguments, variant=variant, compete="all", child_id=child_id, keep="steps").steps
    many = 0
    for child in child_id.unique():
        seen = child_id == child
        many += int(seen.sum() > 1)
        # The official code gives every window the whole child at first.
        windows = int(seen.sum()) if variant == "official" else 1
        for step, mass in zip(steps, (windows, 1, 1), strict=True):
            total = step.coupling[:, seen].sum((-2, -1))
            assert_near(total, torch.full_like(total, mass))
    assert many > 0
    alone = route(arguments, variant=variant, keep="steps").steps
    assert (alone[-1].coupling - steps[-1].coupling).abs().max() > 0.1


def test_children_are_known_by_their_number_alone():
    child_id = OVERLAPPING.child_id()
    arguments = drawn((*child_id.shape, 3, 2))
    renamed = (child_id + 17) % 48
    here, there = (
        route(arguments, compete="all", child_id=name, keep="last") for name in (child_id, renamed)
    )
    assert_near(there, here)
