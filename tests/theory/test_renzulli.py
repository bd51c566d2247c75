"""[renzulli2025] Eq. 12, a pruned vote keeps its prior logit, and Eq. 9 with Appendix D: the
gradient of a vote, which is exact only where the parents of earlier iterations are constants."""

import pytest
import torch

from torchcaps.ops import dynamic_routing, margin_loss, materialise, squash
from torchcaps.ops.routing.common import over_parents
from torchcaps.types import Capsules, VoteMap

N_IN, N_OUT, SIZE = 6, 4, 3
DRAWS = 20


def pruned_votes(*pairs):
    weight = torch.randn(N_IN, N_OUT, SIZE, 5).double()
    for i, j in pairs:
        weight[i, j] = 0
    return materialise(VoteMap(Capsules(torch.randn(2, N_IN, 5).double()), weight))


def test_equation_12_a_pruned_child_keeps_its_prior():
    votes = pruned_votes(*[(2, j) for j in range(N_OUT)])
    prior = torch.randn(N_IN, N_OUT).double()
    for step in dynamic_routing(votes, iterations=4, prior=prior, keep="steps").steps:
        assert torch.equal(step.coupling[:, 2], over_parents(prior)[2].expand(2, N_OUT))


def test_equation_12_two_pruned_votes_keep_their_ratio():
    votes = pruned_votes((1, 0), (1, 3))
    prior = torch.randn(N_IN, N_OUT).double()
    prior[1, 3] = prior[1, 0]
    steps = dynamic_routing(votes, iterations=4, prior=prior, keep="steps").steps
    for step in steps:
        assert torch.equal(step.coupling[:, 1, 0], step.coupling[:, 1, 3])
    # Its rivals move, so the coupling itself does not stay.
    assert (steps[-1].coupling - steps[0].coupling)[:, 1, 0].abs().max() > 1e-3


@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("learned", [False, True], ids=["zero", "learned"])
def test_equation_12_one_pruned_vote(learned, iterations):
    # c_ij = exp(b_ij) / (exp(b_ij) + Σ_{k≠j} exp(b_ik + Σ_r ⟨u_k^(r), û_ik⟩)), r before this one
    for _ in range(DRAWS):
        pruned = torch.rand(N_IN, N_OUT) < 0.3
        pruned[0] = True  # all votes of a child
        pruned[1, :2] = torch.tensor([True, False])
        votes = pruned_votes(*pruned.nonzero().tolist())
        assert not votes[:, pruned].any()
        prior = torch.randn(N_IN, N_OUT).double() if learned else None
        first = torch.zeros(N_IN, N_OUT).double() if prior is None else prior
        logits = first.expand(2, -1, -1)
        for step in dynamic_routing(votes, iterations=iterations, prior=prior, keep="steps").steps:
            # The numerator of a prior of zero is one.
            expected = first.exp() / logits.exp().sum(-1, keepdim=True)
            assert (step.coupling - expected)[:, pruned].abs().max() <= 1e-12
            assert torch.equal(step.coupling[:, 0], over_parents(first)[0].expand(2, N_OUT))
            moved = torch.einsum("bijd,bjd->bij", votes, step.parents.pose)
            assert not moved[:, pruned].any()
            assert moved[:, ~pruned].all()
            logits = logits + moved


def gradients(detach, iterations):
    """Autograd's gradient of the votes, and the two terms of Eq. 9."""
    votes = torch.randn(N_IN, N_OUT, SIZE).double().requires_grad_()
    target = torch.tensor([1])
    routed = dynamic_routing(votes, iterations=iterations, detach=detach, keep="steps")
    loss = margin_loss(routed.parents.activation[None], target)
    (gradient,) = torch.autograd.grad(loss, votes)

    c = routed.steps[-1].coupling.detach()
    u_hat = votes.detach()
    s = torch.einsum("ij,ijd->jd", c, u_hat).requires_grad_()
    loss = margin_loss(squash(s).norm(dim=-1)[None], target)
    (by_s,) = torch.autograd.grad(loss, s)
    earlier = sum(
        (step.parents.pose.detach() for step in routed.steps[:-1]), torch.zeros(N_OUT, SIZE)
    )
    direct, through_couplings = torch.zeros_like(u_hat), torch.zeros_like(u_hat)
    for i in range(N_IN):
        for j in range(N_OUT):
            direct[i, j] = by_s[j] * c[i, j]
            for m in range(N_OUT):
                by_coupling = by_s[m] @ u_hat[i, m]
                moved = c[i, m] * (float(m == j) - c[i, j]) * earlier[j]
                through_couplings[i, j] += by_coupling * moved
    return gradient, direct, through_couplings


def error_of_equation_9(detach, iterations):
    """Of its two terms, relative to the gradient."""
    gradient, direct, through_couplings = gradients(detach, iterations)
    assert (through_couplings.abs().max() > 1e-3) == (iterations > 1)
    return (gradient - direct - through_couplings).norm() / gradient.norm()


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_equation_9_with_constant_states(iterations):
    for _ in range(DRAWS):
        assert error_of_equation_9("states", iterations) <= 1e-12


@pytest.mark.parametrize("iterations", [2, 3])
def test_equation_9_misses_terms_of_the_full_graph(iterations, ours):
    # Exact for one iteration, and where earlier states are constants. The paper does not say
    # whether they are, so this refutes nothing.
    for _ in range(DRAWS):
        assert error_of_equation_9("none", 1) <= 1e-12
        assert error_of_equation_9("states", iterations) <= 1e-12
        assert error_of_equation_9("none", iterations) > 0.05
    ours(0.0)


@pytest.mark.parametrize("detach", ["coupling", "votes"])
def test_equation_9_with_constant_couplings_has_its_first_term_alone(detach):
    for _ in range(DRAWS):
        gradient, direct, _ = gradients(detach, iterations=3)
        torch.testing.assert_close(gradient, direct, rtol=0, atol=1e-12)
