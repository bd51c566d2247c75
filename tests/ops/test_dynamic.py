"""Dynamic routing: three iterations on paper, every option against the loop twin, error texts."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference.dynamic import dynamic_routing as twin
from torchcaps.errors import TorchcapsError
from torchcaps.ops import dynamic_routing, squash, uniform_routing
from torchcaps.types import Capsules

DETACH = ["none", "votes", "states", "coupling"]


def random_votes(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


def agree_and_scatter():
    """Two children: both say 1 to parent 0; to parent 1 they say 1 and −1."""
    return torch.tensor([[[1.0], [1.0]], [[1.0], [-1.0]]], dtype=torch.float64)


def test_three_iterations_on_paper():
    # t = 1: c = 1/2, s = (1, 0), v = (1/2, 0), b_i0 = 1/2, b_i1 = 0
    # t = 2: c_i0 = 1/(1 + exp(−1/2)) = 0.6224593, s_0 = 1.2449187, v_0 = s²/(1 + s²) = 0.6078158
    # t = 3: c_i0 = 1/(1 + exp(−1.1078158)) = 0.7517217, s_0 = 1.5034434, v_0 = 0.6932837
    parents, steps, _ = dynamic_routing(agree_and_scatter(), iterations=3, keep="steps")
    couplings = [step.coupling[:, 0] for step in steps]
    lengths = [step.parents.activation for step in steps]
    for t, (coupling, length) in enumerate(
        [(0.5, 0.5), (0.6224593, 0.6078158), (0.7517217, 0.6932837)]
    ):
        assert couplings[t].tolist() == pytest.approx([coupling, coupling], abs=1e-7)
        assert lengths[t].tolist() == pytest.approx([length, 0.0], abs=1e-7)
    assert parents.pose.flatten().tolist() == pytest.approx([0.6932837, 0.0], abs=1e-7)


# One child says 3 to the left parent and 4 to the right one.
# t = 1: s = (1.5, 2), v = (2.25/3.25, 4/5) = (0.6923077, 0.8), agreements (2.0769231, 3.2)
# t = 2: logits are half of them, c_left = 1/(1 + exp(0.5615385)) = 0.3631916,
#        s = (1.0895747, 2.5472337), v = (0.5427888, 0.8664601)
@pytest.mark.parametrize("factor", [0.5, torch.tensor(0.5), torch.tensor([0.5])], ids=str)
def test_half_the_agreement_on_paper(factor):
    votes = torch.tensor([[[3.0], [4.0]]], dtype=torch.float64)
    routed = dynamic_routing(votes, iterations=2, agreement=factor, keep="last")
    coupling = [0.3631916, 1 - 0.3631916]
    assert routed.steps[0].coupling.tolist() == [pytest.approx(coupling, abs=1e-7)]
    expected = [0.5427888, 0.8664601]
    assert routed.parents.pose.flatten().tolist() == pytest.approx(expected, abs=1e-7)


def test_without_agreement_only_the_prior_routes():
    votes, prior = random_votes(2, 5, 3, 4), random_votes(5, 3)
    deaf = dynamic_routing(votes, prior=prior, agreement=0, keep="last")
    first = dynamic_routing(votes, prior=prior, iterations=1, keep="last")
    torch.testing.assert_close(deaf, first, rtol=0, atol=1e-14)


@pytest.mark.parametrize("detach", ["none", "votes", "states", "coupling"])
def test_the_gradient_of_the_factor_is_that_of_the_twin(detach):
    votes = random_votes(2, 4, 3, 2)
    found = []
    for route in (dynamic_routing, twin):
        factor = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        parents = route(votes, agreement=factor, detach=detach)[0]
        pose = parents.pose if isinstance(parents, Capsules) else parents
        loss = (pose * torch.arange(pose.numel()).view_as(pose)).sum() + 0 * factor
        found += torch.autograd.grad(loss, factor)
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
    assert (found[0] == 0) == (detach == "coupling")


def test_prior_on_paper():
    # exp(ln 3) : exp(0) = 3 : 1
    prior = torch.tensor([[math.log(3), 0.0]] * 2, dtype=torch.float64)
    votes = agree_and_scatter()
    routed = dynamic_routing(votes, iterations=1, prior=prior, squash="none", keep="last")
    assert routed.steps[0].coupling.tolist() == [pytest.approx([0.75, 0.25])] * 2
    assert routed.parents.pose.flatten().tolist() == pytest.approx([1.5, 0.0])


def test_leaky_on_paper():
    # three parents with logit zero, one of them nobody
    votes = agree_and_scatter()
    routed = dynamic_routing(votes, iterations=1, leaky=True, squash="none", keep="last")
    assert routed.steps[0].coupling.flatten().tolist() == pytest.approx([1 / 3] * 4)
    assert routed.parents.pose.flatten().tolist() == pytest.approx([2 / 3, 0.0])


def test_leaky_leaves_more_mass_where_votes_scatter():
    votes = random_votes(6, 2, 4)
    agreeing = votes[:1].expand_as(votes)
    left, kept = (
        1 - dynamic_routing(v, leaky=True, keep="last").steps[0].coupling.sum(-1)
        for v in (votes, agreeing)
    )
    assert (left > 0).all()
    assert kept.mean() < left.mean()


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_bias_enters_before_every_squash(iterations):
    # Zero votes: every v is g(bias), and (3, 4) squashes to 25/26 of its direction.
    bias = torch.tensor([[3.0, 4.0], [0.0, 1.0]], dtype=torch.float64)
    votes = torch.zeros(5, 2, 2, dtype=torch.float64)
    routed = dynamic_routing(votes, iterations=iterations, bias=bias, keep="steps")
    for step in routed.steps:
        assert step.parents.pose.flatten().tolist() == pytest.approx([15 / 26, 20 / 26, 0, 0.5])


def test_an_odd_bias_lies_on_the_side_of_s_on_paper():
    # s = (2, 0) and (−2, 0); ⟨s, bias⟩ = ±6, so s + side · bias = ±(5, 1), of length √26.
    bias = torch.tensor([[3.0, 1.0]], dtype=torch.float64)
    for sign in (1, -1):
        votes = sign * torch.tensor([[[1.5, 0.0]], [[0.5, 0.0]]], dtype=torch.float64)
        pose = dynamic_routing(votes, bias=bias, odd_bias=True).parents.pose
        expected = [sign * 5 * 26**0.5 / 27, sign * 26**0.5 / 27]
        assert pose.flatten().tolist() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["hinton", "exp", "none"])
def test_the_last_couplings_gave_the_parents(kind):
    votes, bias = random_votes(2, 5, 3, 4), random_votes(3, 4)
    routed = dynamic_routing(votes, bias=bias, squash=kind, keep="last")
    mixed = (routed.steps[0].coupling[..., None] * votes).sum(-3)
    torch.testing.assert_close(routed.parents.pose, squash(mixed + bias, kind), rtol=0, atol=1e-12)


@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 5])
def test_logits_are_the_prior_plus_all_agreements(iterations):
    """[renzulli2025] prints three upper limits of the sum: r_T in Eq. 7 and r_T − 2 in Eq. 23,
    where Algorithm 1 has r_T − 1. Each is off by one: it gives the couplings of one iteration more,
    or of one less."""
    for draw in range(20):
        votes, prior = random_votes(5 + draw % 3, 3, 4), random_votes(5 + draw % 3, 3)
        steps, one_more = (
            dynamic_routing(votes, iterations=t, prior=prior, keep="steps").steps
            for t in (iterations, iterations + 1)
        )
        agreed = [(votes * step.parents.pose).sum(-1) for step in steps]
        up_to = [(prior + sum(agreed[:limit])).softmax(-1) for limit in range(iterations + 1)]
        coupling = steps[-1].coupling
        assert (up_to[iterations - 1] - coupling).abs().max() <= 1e-12
        assert (up_to[iterations] - one_more[-1].coupling).abs().max() <= 1e-12
        assert (up_to[iterations] - coupling).abs().max() > 1e-6
        if iterations > 1:
            assert (up_to[iterations - 2] - steps[-2].coupling).abs().max() <= 1e-12
            assert (up_to[iterations - 2] - coupling).abs().max() > 1e-6


def test_one_iteration_is_uniform_routing():
    votes, bias = random_votes(2, 5, 3, 4), random_votes(3, 4)
    torch.testing.assert_close(
        dynamic_routing(votes, iterations=1, bias=bias).parents,
        uniform_routing(votes, bias=bias).parents,
        rtol=0,
        atol=1e-14,
    )


def test_keep_counts_steps_and_names_no_children():
    votes = random_votes(5, 3, 4)
    for keep, count in (("none", 0), ("last", 1), ("steps", 4)):
        steps = dynamic_routing(votes, iterations=4, keep=keep).steps
        assert len(steps) == count
        assert all(step.children is None for step in steps)


def test_a_prior_of_any_broadcast_shape():
    votes, prior = random_votes(2, 5, 3, 4), random_votes(2, 5, 3)
    batch = dynamic_routing(votes, prior=prior).parents.pose
    for b in range(2):
        alone = dynamic_routing(votes[b], prior=prior[b]).parents.pose
        torch.testing.assert_close(batch[b], alone, rtol=0, atol=1e-12)
    row = prior[0, :1]
    for narrow in (row, row[0]):
        torch.testing.assert_close(
            dynamic_routing(votes, prior=narrow).parents.pose,
            dynamic_routing(votes, prior=row.expand(5, 3)).parents.pose,
            rtol=0,
            atol=1e-14,
        )


def gradients_of(detach, votes, bias, prior, iterations=3):
    leaves = [x.detach().clone().requires_grad_() for x in (votes, bias, prior)]
    routed = dynamic_routing(
        leaves[0], bias=leaves[1], prior=leaves[2], detach=detach, iterations=iterations
    )
    weight = torch.linspace(-1, 1, routed.parents.pose.numel(), dtype=torch.float64)
    total = (routed.parents.pose.flatten() * weight).sum()
    return torch.autograd.grad(total, leaves, allow_unused=True)


def test_detach_modes_change_gradients_as_described_and_no_value():
    votes, bias, prior = random_votes(5, 3, 4), random_votes(3, 4), random_votes(5, 3)
    plain = dynamic_routing(votes, bias=bias, prior=prior)
    for detach in DETACH[1:]:
        other = dynamic_routing(votes, bias=bias, prior=prior, detach=detach)
        assert torch.equal(plain.parents.pose, other.parents.pose)
    got = {detach: gradients_of(detach, votes, bias, prior) for detach in DETACH}
    # "states": nothing reaches the parents of earlier iterations, for any of the three leaves.
    for a, b in zip(got["none"], got["states"], strict=True):
        assert (a - b).abs().max() > 1e-3
    # "votes": the votes alone lose their earlier paths; bias and prior keep all of theirs.
    assert (got["none"][0] - got["votes"][0]).abs().max() > 1e-3
    assert torch.equal(got["none"][1], got["votes"][1])
    assert torch.equal(got["none"][2], got["votes"][2])
    # Couplings are constants: no gradient for the prior, and the votes have that of a weighted sum.
    assert got["coupling"][2] is None
    leaf = votes.clone().requires_grad_()
    coupling = dynamic_routing(votes, bias=bias, prior=prior, keep="last").steps[0].coupling
    pose = squash((coupling[..., None] * leaf).sum(-3) + bias)
    weight = torch.linspace(-1, 1, 12, dtype=torch.float64)
    (expected,) = torch.autograd.grad((pose.flatten() * weight).sum(), leaf)
    torch.testing.assert_close(got["coupling"][0], expected, rtol=0, atol=1e-12)
    # To the votes alone "votes" is the same; but the bias still steers the couplings.
    torch.testing.assert_close(got["votes"][0], expected, rtol=0, atol=1e-12)
    assert (got["votes"][1] - got["coupling"][1]).abs().max() > 1e-3


def test_one_iteration_has_nothing_to_detach():
    votes, bias, prior = random_votes(5, 3, 4), random_votes(3, 4), random_votes(5, 3)
    plain = gradients_of("none", votes, bias, prior, iterations=1)
    for detach in ("votes", "states"):
        for a, b in zip(plain, gradients_of(detach, votes, bias, prior, iterations=1), strict=True):
            assert torch.equal(a, b)


OPTIONS = [
    pytest.param({"iterations": t, "squash": kind, "leaky": leaky}, id=f"{kind}-{t}-leaky={leaky}")
    for kind in ("hinton", "exp", "none")
    for t in (1, 3)
    for leaky in (False, True)
] + [
    *(pytest.param({"detach": d, "squash": "exp"}, id=f"detach-{d}") for d in DETACH[1:]),
    pytest.param({"odd_bias": True}, id="odd-bias"),
]
# no batch axis, one child, one parent, both, a batch of one, two batch axes
SHAPES = [(5, 3, 4), (1, 3, 2), (4, 1, 3), (1, 1, 1), (1, 3, 2, 3), (2, 1, 2, 3, 2)]


@pytest.mark.parametrize("parameters", [(), ("bias",), ("prior",), ("bias", "prior")], ids=str)
@pytest.mark.parametrize("options", OPTIONS)
def test_parity_with_the_twin(options, parameters, device, dtype, tolerance):
    for shape in SHAPES:
        *_, n_in, n_out, size = shape
        sizes = {"bias": (n_out, size), "prior": (n_in, n_out)}
        theirs = {name: random_votes(*sizes[name]).requires_grad_() for name in parameters}
        theirs["votes"] = random_votes(*shape).requires_grad_()
        ours = {name: x.detach().to(device, dtype).requires_grad_() for name, x in theirs.items()}
        parents, steps, _ = dynamic_routing(**ours, **options, keep="steps")
        expected, couplings = twin(**theirs, **options)
        result = torch.cat([x.flatten() for x in (parents.pose, *(s.coupling for s in steps))])
        reference = torch.cat([x.flatten() for x in (expected, *couplings)])
        torch.testing.assert_close(result.cpu().double(), reference, rtol=0, atol=tolerance)
        weight = torch.randn_like(reference)
        gradients = torch.autograd.grad(
            (result * weight.to(result)).sum(), ours.values(), materialize_grads=True
        )
        expected_gradients = torch.autograd.grad(
            (reference * weight).sum(), theirs.values(), materialize_grads=True
        )
        for name, a, b in zip(ours, gradients, expected_gradients, strict=True):
            error = (a.cpu().double() - b).abs().max().item()
            assert error <= tolerance, f"gradient of {name} at {shape}"


def test_activation_is_the_length_of_the_pose():
    for keep in ("none", "last"):
        parents = dynamic_routing(random_votes(2, 5, 3, 4), keep=keep).parents
        torch.testing.assert_close(parents.activation, parents.pose.norm(dim=-1))


def test_empty_batch():
    votes = torch.zeros(0, 5, 3, 4, requires_grad=True)
    bias = torch.ones(3, 4, requires_grad=True)
    routed = dynamic_routing(votes, bias=bias, keep="last")
    assert routed.parents.pose.shape == (0, 3, 4)
    assert routed.parents.activation.shape == (0, 3)
    assert routed.steps[0].coupling.shape == (0, 5, 3)
    routed.parents.pose.sum().backward()
    assert torch.equal(bias.grad, torch.zeros(3, 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_computes_in_float32(dtype):
    votes = random_votes(2, 40, 3, 4).to(dtype)
    half, wide = (dynamic_routing(v, keep="last") for v in (votes, votes.float()))
    for a, b in (
        (half.parents.pose, wide.parents.pose),
        (half.steps[0].coupling, wide.steps[0].coupling),
    ):
        assert a.dtype == dtype
        assert torch.equal(a, b.to(dtype))


def test_autocast_changes_nothing():
    votes, bias = random_votes(2, 5, 3, 4).float(), random_votes(3, 4).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = dynamic_routing(votes, bias=bias).parents.pose
    assert torch.equal(inside, dynamic_routing(votes, bias=bias).parents.pose)


@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 3),
    iterations=st.integers(1, 4),
    kind=st.sampled_from(["hinton", "exp", "none"]),
    leaky=st.booleans(),
    exponent=st.integers(-30, 4),
    dead=st.floats(0, 1),
    twins=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_values_and_gradients_are_finite(
    sizes, iterations, kind, leaky, exponent, dead, twins, seed
):
    generator = torch.Generator().manual_seed(seed)
    votes = torch.randn(2, *sizes, generator=generator) * 10.0**exponent
    votes = votes * (torch.rand(2, *sizes[:2], 1, generator=generator) >= dead)
    votes = (votes[:, :1].expand_as(votes) if twins else votes).clone().requires_grad_()
    routed = dynamic_routing(votes, iterations=iterations, squash=kind, leaky=leaky, keep="last")
    coupling = routed.steps[0].coupling
    (gradient,) = torch.autograd.grad(
        routed.parents.pose.sum() + routed.parents.activation.sum() + coupling.sum(), votes
    )
    for x in (*routed.parents, coupling, gradient):
        assert x.isfinite().all()
    if kind != "none":
        assert routed.parents.activation.max() <= 1 + 1e-6
    assert coupling.sum(-1).max() <= 1 + 1e-6


VOTES = torch.zeros(2, 5, 3, 4)


@pytest.mark.parametrize(
    ("votes", "options", "message"),
    [
        (
            VOTES[0, 0],
            {},
            "votes must have the axes [*batch, child, parent, pose], at least three, but came with "
            "shape [3, 4]; one child or one parent still needs its axis: use unsqueeze.",
        ),
        *(
            (VOTES, {"leaky": value}, f"leaky must be True or False, but came as {value!r}.")
            for value in ("xy", None, 0.5, 2)
        ),
        *(
            (VOTES, {"agreement": value}, message)
            for value, message in [
                (-0.5, "agreement must be a finite number from 0 up, but came as -0.5."),
                (
                    "learned",
                    "agreement must be a finite number from 0 up, but came as 'learned'.",
                ),
                (
                    torch.ones(3),
                    "agreement must be one number for all votes, but came as a tensor of shape "
                    "[3]; children and parents have no factors of their own.",
                ),
            ]
        ),
        (
            VOTES.long(),
            {},
            "votes must be floating point, but came as torch.int64; convert them with "
            "votes.float().",
        ),
        (
            VOTES[:, :0],
            {},
            "votes need at least one child, one parent and one pose component, but came with shape "
            "[2, 0, 3, 4]; only batch axes may be empty.",
        ),
        (
            VOTES,
            {"iterations": 0},
            "iterations counts the uniform first pass, so it must be a whole number from 1, but "
            "came as 0; for no routing at all take routing='uniform', in ops uniform_routing.",
        ),
        (
            VOTES,
            {"iterations": 2.5},
            "iterations counts the uniform first pass, so it must be a whole number from 1, but "
            "came as 2.5; for no routing at all take routing='uniform', in ops uniform_routing.",
        ),
        (
            VOTES,
            {"squash": "expo"},
            "squash='expo' is unknown; did you mean 'exp'? known: exp, hinton, none.",
        ),
        (
            VOTES,
            {"detach": "vote"},
            "detach='vote' is unknown; did you mean 'votes'? known: coupling, none, states, votes.",
        ),
        (
            VOTES,
            {"keep": "step"},
            "keep='step' is unknown; did you mean 'steps'? known: last, none, steps.",
        ),
        (
            VOTES,
            {"prior": torch.zeros(3, 5)},
            "prior must broadcast to [*batch, child, parent] = [2, 5, 3], but has shape [3, 5]; "
            "was it made for a layer of another size?",
        ),
        (
            VOTES,
            {"bias": torch.zeros(4, 4)},
            "bias must broadcast to [*batch, parent, pose] = [2, 3, 4], but has shape [4, 4]; "
            "was it made for a layer of another size?",
        ),
        (
            VOTES[0],
            {"bias": torch.zeros(2, 3, 4)},
            "bias must broadcast to [*batch, parent, pose] = [3, 4], but has shape [2, 3, 4]; "
            "was it made for a layer of another size?",
        ),
    ],
)
def test_errors_say_what_to_mend(votes, options, message):
    with pytest.raises(TorchcapsError, match=f"^{re.escape(message)}$"):
        dynamic_routing(votes, **options)


def test_parameters_follow_the_precision_of_the_votes():
    votes = torch.randn(5, 3, 4, dtype=torch.float64)
    prior, bias = torch.randn(5, 3), torch.randn(3, 4)
    mixed = dynamic_routing(votes, prior=prior, bias=bias).parents.pose
    assert mixed.dtype == torch.float64
    assert torch.equal(
        mixed, dynamic_routing(votes, prior=prior.double(), bias=bias.double())[0].pose
    )


def test_sizes_can_be_asked_without_computing():
    routed = dynamic_routing(torch.empty(2, 5, 3, 4, device="meta"), keep="last")
    assert routed.parents.pose.shape == (2, 3, 4)
    assert routed.steps[0].coupling.shape == (2, 5, 3)
