"""Attention between capsules: parity with torch's own, Table 3 of [mitterreiter2023]."""

import math

import pytest
import torch

from torchcaps.layers import AttentionCapsules
from torchcaps.types import Capsules

N, D = 5, 6
WEIGHTS = ("query", "key", "value", "output")


def made(heads=1, n=N, d=D):
    return AttentionCapsules(n=n, d=d, heads=heads).double()


def children(*lead, n=N, d=D):
    return Capsules(torch.randn(*lead, n, d, dtype=torch.float64))


@pytest.mark.parametrize("lead", [(2,), (1,)], ids=str)
@pytest.mark.parametrize(
    ("n", "d", "heads"), [(5, 6, 1), (5, 6, 3), (4, 6, 6), (1, 3, 1), (3, 1, 1)]
)
def test_parity_with_multihead_attention(n, d, heads, lead):
    layer = made(heads, n, d)
    theirs = torch.nn.MultiheadAttention(d, heads, bias=False, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([layer.query, layer.key, layer.value]))
        theirs.out_proj.weight.copy_(layer.output)
    pose = children(*lead, n=n, d=d).pose.requires_grad_()
    expected, attention = theirs(pose, pose, pose)
    routed = layer(Capsules(pose), keep="last")
    coupling = routed.steps[0].coupling
    torch.testing.assert_close(routed.parents.pose, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(coupling, attention.mT, rtol=0, atol=1e-10)
    towards, other = torch.randn_like(expected), torch.randn_like(attention)
    gradients = torch.autograd.grad(
        (routed.parents.pose * towards).sum() + (coupling * other.mT).sum(),
        [pose, *(getattr(layer, name) for name in WEIGHTS)],
    )
    expected_gradients = torch.autograd.grad(
        (expected * towards).sum() + (attention * other).sum(),
        [pose, theirs.in_proj_weight, theirs.out_proj.weight],
    )
    found = gradients[0], torch.cat(gradients[1:4]), gradients[4]
    torch.testing.assert_close(found, expected_gradients, rtol=0, atol=1e-10)


def test_two_capsules_on_paper():
    # d = 1, every weight 1, poses 1 and 2. Parent 0 scores (1, 2): 1/(1 + e) and e/(1 + e);
    # parent 1 scores (2, 4): 1/(1 + e²) and e²/(1 + e²).
    layer = made(n=2, d=1)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.fill_(1)
    routed = layer(Capsules(torch.tensor([[1.0], [2.0]], dtype=torch.float64)), keep="last")
    first, second = 1 / (1 + math.e), 1 / (1 + math.e**2)
    coupling = routed.steps[0].coupling
    assert coupling[:, 0].tolist() == pytest.approx([first, 1 - first])
    assert coupling[:, 1].tolist() == pytest.approx([second, 1 - second])
    assert routed.parents.pose.flatten().tolist() == pytest.approx([2 - first, 2 - second])


def test_activation_is_the_length_and_that_of_children_does_not_count():
    layer, u = made(), children(2)
    parents = layer(u).parents
    torch.testing.assert_close(parents.activation, parents.pose.norm(dim=-1))
    loud = layer(Capsules(u.pose, torch.rand(2, N, dtype=torch.float64)))
    assert torch.equal(loud.parents.pose, parents.pose)


def test_the_order_of_children_is_that_of_parents():
    layer, pose, order = made(heads=3), children(2).pose, torch.randperm(N)
    before, after = (layer(Capsules(u)).parents.pose for u in (pose, pose[:, order]))
    torch.testing.assert_close(before[:, order], after, rtol=0, atol=1e-12)


def test_weights_start_as_xavier_has_it():
    torch.manual_seed(3)
    layer = AttentionCapsules(n=2, d=50)
    bound = math.sqrt(6 / 100)
    for name in WEIGHTS:
        weight = getattr(layer, name)
        assert 0.99 * bound < weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize("heads", [1, 2])
def test_couplings_that_somebody_gives_are_the_attention_of_every_head(heads):
    layer = AttentionCapsules(n=5, d=4, heads=heads).double()
    children = Capsules(torch.randn(2, 5, 4, dtype=torch.float64))
    bare = layer(children, keep="last")
    same = layer(children, keep="last", couple=lambda c: c)
    assert torch.equal(bare.parents.pose, same.parents.pose)
    given = torch.rand(2, 5, 5, dtype=torch.float64)
    found = layer(children, keep="last", couple=lambda c: given)
    expected = given.transpose(-1, -2) @ (children.pose @ layer.value.T) @ layer.output.T
    torch.testing.assert_close(found.parents.pose, expected, rtol=0, atol=1e-12)
    assert torch.equal(found.steps[0].coupling, given)
