"""Self-attention routing as a module: its prior, and what it hands to its op."""

import pytest
import torch

from layers.routing.bound import VOTES, assert_equal, bound, random_parameters
from torchcaps.layers import SelfAttentionRouting
from torchcaps.ops import self_attention_routing


@pytest.mark.parametrize("squash", ["exp", "hinton"])
@pytest.mark.parametrize(("prior", "over"), [("learned", "none"), ("zero", "parents")])
def test_self_attention_hands_its_prior_to_its_op(prior, over, squash):
    votes = torch.randn(VOTES)
    routing = bound(SelfAttentionRouting(prior=prior, squash=squash))
    assert (routing.prior is None) == (prior == "zero")
    if prior == "learned":
        assert torch.equal(routing.prior, torch.zeros(5, 4))
    random_parameters(routing)
    op = self_attention_routing(votes, bias=routing.prior, squash=squash, keep="steps")
    assert_equal(routing(votes, None, keep="steps"), op)
    assert routing.normalised_over == over
