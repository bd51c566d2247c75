"""[renzulli2025] Eqs. 7, 20, 21 and 23 and Algorithm 1: couplings with r_T, r_T - 2 and r_T - 1
agreements, which are those of three neighbouring iterations."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from torchcaps.ops import dynamic_routing

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "claims/pages/findings/three-sums.md").read_text(encoding="utf-8").split())
N_IN, N_OUT, SIZE = 6, 4, 3
LAST_OF_SUM = {"eq 7": 0, "algorithm 1": -1, "eq 23": -2}


def couplings(place, votes, prior, r_t):
    """softmax_j(b_ij + Σ_r u_j^(r) · û_ij), r from 1 to what the place prints as the last."""
    steps = dynamic_routing(votes, iterations=max(r_t, 1), prior=prior, keep="steps").steps
    logits = prior.clone()
    for r in range(1, r_t + LAST_OF_SUM[place] + 1):
        logits = logits + torch.einsum("ijd,jd->ij", votes, steps[r - 1].parents.pose)
    return logits.softmax(-1)


def drawn():
    return torch.randn(N_IN, N_OUT, SIZE).double(), torch.randn(N_IN, N_OUT).double()


@pytest.mark.parametrize("r_t", [2, 3, 4, 5])
def test_which_iteration_each_formula_is(r_t):
    votes, prior = drawn()
    for place, iterations in (("eq 7", r_t + 1), ("algorithm 1", r_t), ("eq 23", r_t - 1)):
        (step,) = dynamic_routing(votes, iterations=iterations, prior=prior, keep="last").steps
        found = couplings(place, votes, prior, r_t)
        torch.testing.assert_close(step.coupling, found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("r_t", [1, 2, 3, 4, 5])
def test_eqs_20_and_21_together_are_eq_23(r_t):
    votes, prior = drawn()
    steps = dynamic_routing(votes, iterations=r_t, prior=prior, keep="steps").steps

    def b(t):
        """Eq. 21."""
        return sum(
            (
                torch.einsum("ijd,jd->ij", votes, step.parents.pose)
                for step in steps[: max(t - 1, 0)]
            ),
            prior,
        )

    found = b(r_t - 1).softmax(-1)  # Eq. 20
    torch.testing.assert_close(found, couplings("eq 23", votes, prior, r_t), rtol=0, atol=1e-12)


def test_one_iteration_is_even_by_algorithm_1_and_not_by_eq_7(ours):
    votes, _ = drawn()
    none = torch.zeros(N_IN, N_OUT).double()
    assert torch.equal(
        couplings("algorithm 1", votes, none, 1), torch.full((N_IN, N_OUT), 1 / N_OUT).double()
    )
    assert (couplings("eq 7", votes, none, 1) - 1 / N_OUT).abs().max() > 1e-2
    ours(-1.0)


def test_two_iterations_are_even_by_eq_23():
    votes, _ = drawn()
    none = torch.zeros(N_IN, N_OUT).double()
    assert torch.equal(
        couplings("eq 23", votes, none, 2), torch.full((N_IN, N_OUT), 1 / N_OUT).double()
    )
    assert (couplings("algorithm 1", votes, none, 2) - 1 / N_OUT).abs().max() > 1e-2


def test_eq_2_of_gu2021_is_algorithm_1():
    """c^(t+1) has the agreements of iterations 1 to t, one less than the iteration is."""
    votes, prior = drawn()
    steps = dynamic_routing(votes, iterations=5, prior=prior, keep="steps").steps
    logits = prior
    for before, after in pairwise(steps):
        logits = logits + torch.einsum("ijd,jd->ij", votes, before.parents.pose)
        torch.testing.assert_close(after.coupling, logits.softmax(-1), rtol=0, atol=1e-12)


def test_what_the_page_says_of_three_iterations():
    found = {place: [] for place in LAST_OF_SUM}
    for seed in range(20):
        draw = torch.Generator().manual_seed(seed)
        votes = torch.randn(32, 10, 8, generator=draw, dtype=torch.float64)
        for place, polarisation in found.items():
            c = couplings(place, votes, torch.zeros(32, 10).double(), 3)
            polarisation.append(1 - torch.special.entr(c).sum(-1).mean().item() / math.log(10))
    seven, first, last = (sum(each) / len(each) for each in found.values())
    assert (
        f"polarisation of {first:.2f} by Algorithm 1, {seven:.2f} by Eq. 7 and {last:.2f} by Eq. 23"
    ) in PAGE


def test_eq_14_summed_over_images_is_no_entropy():
    """Of 1,000 images of a class, half have one key and half another; no more than 1 bit."""
    share = torch.full((1000,), 0.5, dtype=torch.float64)
    over_images = torch.special.entr(share).sum() / math.log(2)
    over_keys = torch.special.entr(share[:2]).sum() / math.log(2)
    assert (round(over_images.item(), 9), round(over_keys.item(), 9)) == (500, 1)
    assert "give 500 bit by the sum that is printed, and 1 by the other" in PAGE
