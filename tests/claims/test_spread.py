"""The spread of agreement, of couplings whose logits are known."""

import pytest
import torch

import torchcaps as tc
from torchcaps.data import part_whole
from torchcaps.ops import dynamic_routing
from torchcaps.study.look import looks_named
from torchcaps.types import Capsules, LayerTrace, Output, Routed
from torchcaps_claims.spread import spread_of

IMAGES = part_whole("test", 3)


def of_logits(*steps):
    """One layer of these logits [i, j] in its iterations."""

    def network(pixels):
        pose = Capsules(torch.zeros(len(pixels), 2, 2), None)
        couplings = [torch.tensor(each).softmax(-1).expand(len(pixels), -1, -1) for each in steps]
        routed = Routed(pose, tuple(tc.Step(None, each, pose) for each in couplings))
        return Output(torch.ones(len(pixels), 2), "lengths", trace=(LayerTrace("a", pose, routed),))

    return network


def test_it_is_the_deviation_of_what_agreement_adds():
    prior, last = [[0.0, 0.0], [3.0, 1.0]], [[1.0, 0.0], [8.0, 0.0]]
    found = spread_of(of_logits(prior, [[5.0, 0.0], [5.0, 0.0]], last), IMAGES)
    # Agreement adds (1, 0) and (5, −1): deviations of a half and three. Priors have 0 and 1.
    assert found == pytest.approx({"agreement_spread.1": 1.75, "prior_spread.1": 0.5}, rel=1e-6)


def test_what_is_routed_once_has_none():
    assert spread_of(of_logits([[1.0, 0.0]]), IMAGES) == {}


def test_a_coupling_that_vanished_leaves_it_finite():
    found = spread_of(of_logits([[0.0, 0.0]], [[0.0, -200.0]]), IMAGES)
    assert found["agreement_spread.1"] == pytest.approx(87.3 / 2, rel=1e-3)


def test_longer_votes_with_less_alpha_route_alike():
    """So α alone says nothing, and the spread does."""
    votes = torch.randn(3, 4, 5, 2, generator=torch.Generator().manual_seed(0))

    def network(scale, alpha):
        def seen(pixels):
            routed = dynamic_routing(scale * votes, agreement=alpha, squash="none", keep="steps")
            trace = (LayerTrace("a", routed.parents, routed),)
            return Output(torch.ones(len(pixels), 5), "lengths", trace=trace)

        return spread_of(seen, IMAGES)["agreement_spread.1"]

    assert network(2.0, 0.25) == pytest.approx(network(1.0, 1.0), rel=1e-5)
    assert network(1.0, 0.25) < 0.3 * network(1.0, 1.0)


def test_a_study_asks_for_it_by_name():
    assert looks_named(["agreement_spread"], "mnist")[0].kind == "agreement-spread"
