"""Self-attention routing: one pass on paper, and its laws."""

import math

import pytest
import torch

from torchcaps.ops import self_attention_routing


def random_votes(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def agree_and_scatter():
    """Two children, D = 4: both say (1, 0, 0, 0) to parent 0; to parent 1 they say ± that."""
    votes = torch.zeros(2, 2, 4, dtype=torch.float64)
    votes[..., 0] = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    return votes


def test_one_pass_on_paper():
    # A_i0 = (1 + 1)/√4 = 1, A_i1 = (1 − 1)/√4 = 0, c_i0 = 1/(1 + exp(−1)) = 0.7310586
    # s_0 = 1.4621172, v_0 = 1 − exp(−1.4621172) = 0.7682548
    parents, steps, _ = self_attention_routing(agree_and_scatter(), keep="last")
    row = pytest.approx([0.7310586, 0.2689414], abs=1e-7)
    assert steps[0].coupling.tolist() == [row, row]
    assert parents.pose[0].tolist() == pytest.approx([0.7682548, 0, 0, 0], abs=1e-7)
    assert parents.pose[1].tolist() == [0, 0, 0, 0]
    assert parents.activation.tolist() == pytest.approx([0.7682548, 0], abs=1e-7)


def test_bias_after_the_softmax_on_paper():
    # 0.7310586 + 0.5 and 0.2689414 − 0.5: one coupling above one, one below zero
    bias = torch.tensor([[0.5, -0.5]] * 2, dtype=torch.float64)
    routed = self_attention_routing(agree_and_scatter(), bias=bias, squash="none", keep="last")
    row = pytest.approx([1.2310586, -0.2310586], abs=1e-7)
    assert routed.steps[0].coupling.tolist() == [row, row]
    assert routed.parents.pose[0, 0].item() == pytest.approx(2.4621172, abs=1e-7)


def test_a_child_alone_attends_to_its_own_vote():
    # A_j = ‖û_j‖²/√D: with lengths 1 and 2 in one dimension exp(1) : exp(4)
    votes = torch.tensor([[[1.0], [-2.0]]], dtype=torch.float64)
    coupling = self_attention_routing(votes, keep="last").steps[0].coupling
    first = 1 / (1 + math.exp(3))
    assert coupling.flatten().tolist() == pytest.approx([first, 1 - first])


def test_turned_votes_turn_the_parents():
    votes = random_votes(5, 3, 4)
    turn = torch.linalg.qr(random_votes(4, 4)).Q
    torch.testing.assert_close(
        self_attention_routing(votes @ turn).parents.pose,
        self_attention_routing(votes).parents.pose @ turn,
        rtol=0,
        atol=1e-12,
    )
