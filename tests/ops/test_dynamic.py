"""Dynamic routing: three iterations on paper, and its laws."""

import math

import pytest
import torch

from torchcaps.ops import dynamic_routing


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
