"""Uniform routing: both constants on paper, the loop twin, errors."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference.uniform import uniform_routing as twin
from torchcaps.errors import TorchcapsError
from torchcaps.ops import squash, uniform_routing


def random_votes(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize(
    ("normalise", "expected", "share"),
    [
        # three children, two parents: (1 + 2 + 6)/2 and (1 + 1 + 1)/2
        ("softmax", [4.5, 1.5], 1 / 2),
        # (1 + 2 + 6)/3 and (1 + 1 + 1)/3
        ("mean", [3.0, 1.0], 1 / 3),
    ],
)
def test_constants_on_paper(normalise, expected, share):
    votes = torch.tensor([[[1.0], [1.0]], [[2.0], [1.0]], [[6.0], [1.0]]], dtype=torch.float64)
    routed = uniform_routing(votes, normalise=normalise, squash="none", keep="last")
    assert routed.parents.pose.flatten().tolist() == pytest.approx(expected)
    assert torch.equal(routed.steps[0].coupling, torch.full((3, 2), share, dtype=torch.float64))


def test_softmax_and_hinton_are_the_default():
    votes = random_votes(4, 3, 2)
    explicit = uniform_routing(votes, normalise="softmax", squash="hinton")
    assert torch.equal(uniform_routing(votes).parents.pose, explicit.parents.pose)
    assert not torch.equal(
        uniform_routing(votes, normalise="mean").parents.pose, explicit.parents.pose
    )


def test_couplings_give_the_parents():
    votes, bias = random_votes(2, 5, 3, 4), random_votes(3, 4)
    for normalise in ("softmax", "mean"):
        routed = uniform_routing(votes, normalise=normalise, bias=bias, squash="exp", keep="last")
        mixed = (routed.steps[0].coupling[..., None] * votes).sum(-3) + bias
        torch.testing.assert_close(routed.parents.pose, squash(mixed, "exp"), rtol=0, atol=1e-14)


def test_every_keep_but_none_gives_its_one_step():
    votes = random_votes(4, 3, 2)
    assert [len(uniform_routing(votes, keep=k).steps) for k in ("none", "last", "steps")] == [
        0,
        1,
        1,
    ]


def test_scaling_the_votes_undoes_the_constant():
    # I/J turns the mean over five children into the sum over three parents.
    votes = random_votes(5, 3, 4)
    torch.testing.assert_close(
        uniform_routing(votes * 5 / 3, normalise="mean").parents,
        uniform_routing(votes, normalise="softmax").parents,
    )


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("normalise", ["softmax", "mean"])
@pytest.mark.parametrize("kind", ["hinton", "exp", "none"])
def test_parity_with_the_twin(kind, normalise, with_bias, device, dtype, tolerance):
    for shape in [(5, 3, 4), (1, 3, 2), (4, 1, 3), (1, 1, 1), (1, 3, 2, 3), (2, 1, 2, 3, 2)]:
        theirs = {"votes": random_votes(*shape).requires_grad_()}
        if with_bias:
            theirs["bias"] = random_votes(*shape[-2:]).requires_grad_()
        ours = {name: x.detach().to(device, dtype).requires_grad_() for name, x in theirs.items()}
        options = {"normalise": normalise, "squash": kind}
        parents, steps, _ = uniform_routing(**ours, **options, keep="last")
        expected, coupling = twin(**theirs, **options)
        weight = torch.randn_like(expected)
        gradients = torch.autograd.grad(
            (parents.pose * weight.to(parents.pose)).sum(), ours.values()
        )
        expected_gradients = torch.autograd.grad((expected * weight).sum(), theirs.values())
        results = (parents.pose, steps[0].coupling, *gradients)
        for a, b in zip(results, (expected, coupling, *expected_gradients), strict=True):
            torch.testing.assert_close(a.cpu().double(), b, rtol=0, atol=tolerance)


def test_empty_batch():
    routed = uniform_routing(torch.zeros(0, 5, 3, 4), keep="last")
    assert routed.parents.pose.shape == (0, 3, 4)
    assert routed.steps[0].coupling.shape == (0, 5, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_computes_in_float32(dtype):
    # 2000 votes of 60 sum to more than float16 can hold.
    votes = torch.full((2000, 3, 4), 60.0).to(dtype)
    half, wide = (uniform_routing(v, keep="last") for v in (votes, votes.float()))
    assert half.parents.pose.dtype == half.steps[0].coupling.dtype == dtype
    assert torch.equal(half.parents.pose, wide.parents.pose.to(dtype))


@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 3),
    normalise=st.sampled_from(["softmax", "mean"]),
    kind=st.sampled_from(["hinton", "exp", "none"]),
    exponent=st.integers(-30, 4),
    dead=st.floats(0, 1),
    seed=st.integers(0, 2**16),
)
def test_values_and_gradients_are_finite(sizes, normalise, kind, exponent, dead, seed):
    generator = torch.Generator().manual_seed(seed)
    votes = torch.randn(2, *sizes, generator=generator) * 10.0**exponent
    votes = votes * (torch.rand(2, *sizes[:2], 1, generator=generator) >= dead)
    votes.requires_grad_()
    parents = uniform_routing(votes, normalise=normalise, squash=kind).parents
    (gradient,) = torch.autograd.grad(parents.pose.sum() + parents.activation.sum(), votes)
    for x in (*parents, gradient):
        assert x.isfinite().all()
    if kind != "none":
        assert parents.activation.max() <= 1 + 1e-6


VOTES = torch.zeros(2, 5, 3, 4)


@pytest.mark.parametrize(
    ("votes", "options", "message"),
    [
        (VOTES[0, 0], {}, "votes must have the axes [*batch, child, parent, pose], at least three"),
        (VOTES.bool(), {}, "votes must be floating point, but came as torch.bool"),
        (VOTES[..., :0], {}, "came with shape [2, 5, 3, 0]; only batch axes may be empty."),
        (VOTES, {"normalise": "man"}, "normalise='man' is unknown; did you mean 'mean'?"),
        (VOTES, {"squash": "hinten"}, "did you mean 'hinton'? known: exp, hinton, none."),
        (VOTES, {"keep": "all"}, "keep='all' is unknown; "),
        (
            VOTES,
            {"bias": torch.zeros(3, 5)},
            "[*batch, parent, pose] = [2, 3, 4], but has shape [3, 5]",
        ),
    ],
)
def test_errors_say_what_to_mend(votes, options, message):
    with pytest.raises(TorchcapsError, match=re.escape(message)):
        uniform_routing(votes, **options)
