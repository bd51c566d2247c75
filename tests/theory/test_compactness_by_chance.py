"""[gu2021] §3.3: the score of vectors whose components vary independently and alike."""

import math

import pytest
import torch

from torchcaps.analysis.compactness import compactness
from torchcaps_claims import claims

D = 16


def by_chance(images):
    """Variances of s normal numbers are chi-squared with s - 1 degrees of freedom; their shares
    are Dirichlet with α = (s - 1) / 2, whose mean entropy is ψ(D α + 1) - ψ(α + 1)."""
    alpha = torch.tensor((images - 1) / 2, dtype=torch.float64)
    entropy = torch.digamma(D * alpha + 1) - torch.digamma(alpha + 1)
    return math.log(D) - entropy.item()


@pytest.mark.parametrize(("images", "score"), [(5, 0.2141), (9, 0.1120), (41, 0.02322)])
def test_independent_components_do_not_score_zero(images, score):
    draw = torch.Generator().manual_seed(images)
    scores = compactness(torch.randn(4000, images, D, generator=draw, dtype=torch.float64))
    error = scores.std().item() / math.sqrt(len(scores))
    assert by_chance(images) == pytest.approx(score, rel=1e-3)
    assert scores.mean().item() == pytest.approx(score, abs=5 * error)


def test_printed_scores_lie_below_those_of_hundreds_of_images():
    """Where components vary independently."""
    printed = {claim.id: claim.value for claim in claims(paper="gu2021") if claim.table == 5}
    of_r = [value for name, value in printed.items() if "-convnet-r-" in name]
    of_cr = [
        value for name, value in printed.items() if "-convnet-cr-" in name and "-sf-" not in name
    ]
    assert len(of_r) == len(of_cr) == 6
    assert max(of_r) < by_chance(500)
    assert sum(of_r) / 6 < by_chance(1000)
    assert max(of_cr) < by_chance(150)
