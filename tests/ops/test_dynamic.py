"""Dynamic routing: its laws; numbers on paper are in on_paper.toml."""

import pytest
import torch

from ops.random_votes import random_votes
from torchcaps.ops import dynamic_routing


def test_without_agreement_only_the_prior_routes():
    votes, prior = random_votes(2, 5, 3, 4), random_votes(5, 3)
    deaf = dynamic_routing(votes, prior=prior, agreement=0, keep="last")
    first = dynamic_routing(votes, prior=prior, iterations=1, keep="last")
    torch.testing.assert_close(deaf, first, rtol=0, atol=1e-14)


def test_leaky_leaves_more_mass_where_votes_scatter():
    votes = random_votes(6, 2, 4)
    agreeing = votes[:1].expand_as(votes)
    left, kept = (
        1 - dynamic_routing(v, leaky=True, keep="last").steps[0].coupling.sum(-1)
        for v in (votes, agreeing)
    )
    assert (left > 0).all()
    assert kept.mean() < left.mean()


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
