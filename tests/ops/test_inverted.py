"""Inverted routing: its laws; numbers on paper are in on_paper.toml."""

import math

import pytest
import torch

from ops.random_votes import random_votes
from torchcaps.ops import fused, inverted_routing, inverted_step
from torchcaps.ops.votes import materialise
from torchcaps.types import Capsules, VoteMap


def numbers(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def test_two_halves_of_a_child_are_the_child():
    # A child of activation 1 counts like two of activation 1/2 that say the same.
    votes, betas = random_votes(2, 5, 3, 4), {"beta_a": torch.zeros(3), "beta_u": torch.ones(3)}
    whole = inverted_routing(votes, torch.ones(5), **betas, lambda_=1.0).parents
    halves = inverted_routing(
        votes.repeat(1, 2, 1, 1), torch.full((10,), 0.5), **betas, lambda_=1.0
    )
    torch.testing.assert_close(halves.parents, whole, rtol=0, atol=1e-12)


def test_children_of_activation_one_change_no_pose():
    votes = random_votes(2, 5, 3, 4)
    on = inverted_routing(votes, torch.ones(5), beta_a=torch.zeros(3), beta_u=torch.zeros(3))
    assert torch.equal(on.parents.pose, inverted_routing(votes).parents.pose)


def test_a_parent_that_nobody_is_given_to_is_as_likely_as_beta_a_says():
    betas = {"beta_a": numbers(-1.0, 0.0, 2.0), "beta_u": torch.ones(3), "lambda_": 0.5}
    routed = inverted_routing(random_votes(2, 5, 3, 4), torch.zeros(2, 5), **betas)
    assert torch.equal(routed.parents.pose, torch.zeros(2, 3, 4, dtype=torch.float64))
    assert routed.parents.activation[0].tolist() == pytest.approx(
        [1 / (1 + math.exp(-0.5 * x)) for x in (-1, 0, 2)]
    )


def test_agreement_lowers_the_cost_of_a_parent():
    votes = random_votes(6, 1, 4)
    betas = {"beta_a": torch.zeros(1), "beta_u": torch.zeros(1)}
    agreeing, scattered = (
        inverted_routing(v, torch.ones(6), **betas).parents.activation
        for v in (votes[:1].expand_as(votes), votes)
    )
    assert agreeing > scattered


NORM = numbers(0.5, 1.5, -1.0, 2.0), numbers(0.5, -0.25, 0.0, 1.0)
ON = {"activation": numbers(0.9, 0.1, 0.5, 0.0, 1.0), "beta_a": numbers(1.0, 0.0, -1.0)}
ON |= {"beta_u": numbers(0.5, 0.0, 1.0), "lambda_": 0.3}


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("options", [{}, {"norm": NORM, "scale": 0.5}, ON, {"norm": NORM} | ON])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_routing_is_its_steps(dtype, options, started):
    votes = random_votes(2, 5, 3, 4).to(dtype)
    start = torch.randn(3, 4, dtype=dtype) if started else None
    routed = inverted_routing(votes, iterations=4, start=start, **options, keep="steps")
    parents = start
    for kept in routed.steps:
        step = inverted_step(votes, parents, **options)
        assert step.children is None
        torch.testing.assert_close(step, kept, rtol=0, atol=0)
        parents = step.parents.pose
    assert torch.equal(parents, routed.parents.pose)


@pytest.mark.parametrize("options", [{}, {"norm": NORM}])
def test_agreement_decides_the_couplings(options):
    # What the contract calls meaning, but along one axis: LayerNorm is deaf to a vote that is equal
    # in all components.
    votes = torch.zeros(6, 3, 4, dtype=torch.float64)
    angle = torch.arange(6) * (2 * torch.pi / 6)
    votes[..., 0], votes[..., 1] = angle.cos()[:, None], angle.sin()[:, None]
    votes[:, 0] = numbers(0.0, 0.0, 0.0, 1.0)
    steps = inverted_routing(votes, **options, iterations=3, keep="steps").steps
    assert (steps[1].coupling[:, 0] > steps[0].coupling[:, 0]).all()
    assert (steps[2].coupling[:, 0] > 1 / 3).all()


@pytest.mark.parametrize("size", [1, 3, 4, 16, 17])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("normed", [False, True])
def test_negated_votes_negate_the_parents(normed, active, dtype, size):
    votes = random_votes(2, 5, 3, size).to(dtype)
    options = {"norm": (torch.randn(size), torch.zeros(size))} if normed else {}
    options |= ON if active else {}
    plus, minus = (
        inverted_routing(x, **options, iterations=4, keep="steps") for x in (votes, -votes)
    )
    for a, b in zip(plus.steps, minus.steps, strict=True):
        assert torch.equal(a.coupling, b.coupling)
        assert torch.equal(a.parents.pose, -b.parents.pose)
    # LayerNorm over one component leaves nothing.
    assert bool(plus.parents.pose.any()) == (not normed or size > 1)
    if active:
        assert torch.equal(plus.parents.activation, minus.parents.activation)


def test_a_norm_of_one_component_leaves_its_bias_alone():
    """PyTorch's LayerNorm leaves what rounding makes of m/σ − m/σ, 1e-5 of everything here."""
    votes = (100 * random_votes(2, 40, 3, 1)).float().requires_grad_()
    norm = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    pose = inverted_routing(votes, norm=norm, iterations=3).parents.pose
    assert torch.equal(pose, torch.ones(2, 3, 1))
    of_votes, of_weight = torch.autograd.grad((pose * pose.cumsum(1)).sum(), (votes, norm[0]))
    assert not of_votes.any()
    assert not of_weight.any()


def test_the_norm_of_a_long_mean_has_all_digits():
    """By the mean alone 1e-3 of a component would be lost."""
    votes = (1e4 + random_votes(2, 1, 4, 8)).float()
    norm = torch.ones(8), torch.zeros(8)
    pose, exact = (
        inverted_routing(x, norm=tuple(y.to(x) for y in norm), iterations=1).parents.pose
        for x in (votes, votes.double())
    )
    torch.testing.assert_close(pose.double(), exact, rtol=0, atol=1e-5)


def test_a_bias_of_the_norm_breaks_the_symmetry():
    votes = random_votes(2, 5, 3, 4)
    plus, minus = (inverted_routing(x, norm=NORM).parents.pose for x in (votes, -votes))
    assert (plus + minus).abs().max() > 0.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_step_rounds_what_it_returns_and_nothing_before(dtype):
    votes, parents = random_votes(2, 5, 3, 4).to(dtype), random_votes(2, 3, 4).to(dtype)
    half = inverted_step(votes, parents, norm=NORM, **ON)
    wide = inverted_step(votes.float(), parents.float(), norm=NORM, **ON)
    expected = tuple(x.to(dtype) for x in (wide.coupling, *wide.parents))
    torch.testing.assert_close((half.coupling, *half.parents), expected, rtol=0, atol=0)


def test_huge_votes_choose_one_parent():
    # Agreements of 10⁸ and more.
    votes = (1e4 * random_votes(2, 40, 3, 4)).requires_grad_()
    routed = inverted_routing(votes, keep="last")
    coupling = routed.steps[0].coupling
    assert ((coupling == 0) | (coupling == 1)).all()
    routed.parents.pose.sum().backward()
    assert votes.grad.isfinite().all()


@pytest.mark.parametrize("form", [inverted_routing, fused.inverted_routing], ids=["plain", "fused"])
@pytest.mark.parametrize("shape", [(), (1,), (1,) * 6], ids=str)
def test_a_scale_of_any_dtype_and_number_of_axes_is_a_number(form, shape):
    vote_map = VoteMap(Capsules(torch.randn(2, 5, 4)), torch.randn(5, 3, 4, 4))
    votes = vote_map if form is fused.inverted_routing else materialise(vote_map)
    start = torch.randn(3, 4)
    # 1/4 is exact in every dtype.
    expected = form(votes, scale=0.25, start=start).parents.pose
    for dtype in (torch.float16, torch.float64):
        scale = torch.full(shape, 0.25, dtype=dtype, requires_grad=True)
        pose = form(votes, scale=scale, start=start).parents.pose
        assert pose.dtype == torch.float32
        torch.testing.assert_close(pose, expected)
        pose.sum().backward()
        assert scale.grad.shape == shape
    if form is inverted_routing:
        step = inverted_step(votes, start, scale=scale).parents.pose
        torch.testing.assert_close(step, inverted_step(votes, start, scale=0.25).parents.pose)
