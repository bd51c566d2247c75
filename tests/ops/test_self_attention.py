"""Self-attention routing: its law; numbers on paper are in on_paper.toml."""

import torch

from ops.random_votes import random_votes
from torchcaps.ops import self_attention_routing


def test_turned_votes_turn_the_parents():
    votes = random_votes(5, 3, 4)
    turn = torch.linalg.qr(random_votes(4, 4)).Q
    torch.testing.assert_close(
        self_attention_routing(votes @ turn).parents.pose,
        self_attention_routing(votes).parents.pose @ turn,
        rtol=0,
        atol=1e-12,
    )
