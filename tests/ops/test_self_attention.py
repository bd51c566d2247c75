"""Self-attention routing: one pass on paper, its laws, the loop twin, error texts."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference.self_attention import self_attention_routing as twin
from torchcaps.errors import TorchcapsError
from torchcaps.ops import self_attention_routing, squash


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


def test_exp_is_the_default_squash():
    votes = random_votes(4, 3, 2)
    explicit = self_attention_routing(votes, squash="exp")
    assert torch.equal(self_attention_routing(votes).parents.pose, explicit.parents.pose)
    other = self_attention_routing(votes, squash="hinton")
    assert not torch.equal(other.parents.pose, explicit.parents.pose)


@pytest.mark.parametrize("kind", ["hinton", "exp", "none"])
def test_the_couplings_gave_the_parents(kind):
    votes, bias = random_votes(2, 5, 3, 4), random_votes(5, 3)
    routed = self_attention_routing(votes, bias=bias, squash=kind, keep="last")
    mixed = (routed.steps[0].coupling[..., None] * votes).sum(-3)
    torch.testing.assert_close(routed.parents.pose, squash(mixed, kind), rtol=0, atol=1e-12)


def test_a_bias_moves_the_couplings_by_itself():
    votes, bias = random_votes(2, 5, 3, 4), random_votes(5, 3)
    plain, moved = (
        self_attention_routing(votes, bias=b, keep="last").steps[0].coupling for b in (None, bias)
    )
    torch.testing.assert_close(moved - plain, bias.expand(2, 5, 3), rtol=0, atol=1e-14)


def test_turned_votes_turn_the_parents():
    votes = random_votes(5, 3, 4)
    turn = torch.linalg.qr(random_votes(4, 4)).Q
    torch.testing.assert_close(
        self_attention_routing(votes @ turn).parents.pose,
        self_attention_routing(votes).parents.pose @ turn,
        rtol=0,
        atol=1e-12,
    )


def test_every_keep_but_none_gives_its_one_step():
    votes = random_votes(4, 3, 2)
    for keep, count in (("none", 0), ("last", 1), ("steps", 1)):
        routed = self_attention_routing(votes, keep=keep)
        assert len(routed.steps) == count
        assert all(step.children is None for step in routed.steps)
        assert routed.scale is None


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("kind", ["hinton", "exp", "none"])
def test_parity_with_the_twin(kind, with_bias, device, dtype, tolerance):
    for shape in [(5, 3, 4), (1, 3, 2), (4, 1, 3), (1, 1, 1), (1, 3, 2, 3), (2, 1, 2, 3, 2)]:
        theirs = {"votes": random_votes(*shape).requires_grad_()}
        if with_bias:
            theirs["bias"] = random_votes(*shape[-3:-1]).requires_grad_()
        ours = {name: x.detach().to(device, dtype).requires_grad_() for name, x in theirs.items()}
        parents, steps, _ = self_attention_routing(**ours, squash=kind, keep="last")
        expected = twin(**theirs, squash=kind)
        result = torch.cat([parents.pose.flatten(), steps[0].coupling.flatten()])
        reference = torch.cat([x.flatten() for x in expected])
        torch.testing.assert_close(result.cpu().double(), reference, rtol=0, atol=tolerance)
        weight = torch.randn_like(reference)
        gradients = torch.autograd.grad((result * weight.to(result)).sum(), ours.values())
        expected_gradients = torch.autograd.grad((reference * weight).sum(), theirs.values())
        for a, b in zip(gradients, expected_gradients, strict=True):
            torch.testing.assert_close(a.cpu().double(), b, rtol=0, atol=tolerance)


def test_a_bias_of_any_broadcast_shape():
    votes, bias = random_votes(2, 5, 3, 4), random_votes(2, 5, 3)
    batch = self_attention_routing(votes, bias=bias).parents.pose
    for b in range(2):
        alone = self_attention_routing(votes[b], bias=bias[b]).parents.pose
        torch.testing.assert_close(batch[b], alone, rtol=0, atol=1e-12)
    row = bias[0, 0]
    torch.testing.assert_close(
        self_attention_routing(votes, bias=row).parents.pose,
        self_attention_routing(votes, bias=row.expand(5, 3)).parents.pose,
        rtol=0,
        atol=1e-14,
    )


def test_empty_batch():
    bias = torch.ones(5, 3, requires_grad=True)
    routed = self_attention_routing(torch.zeros(0, 5, 3, 4), bias=bias, keep="last")
    assert routed.parents.pose.shape == (0, 3, 4)
    assert routed.parents.activation.shape == (0, 3)
    assert routed.steps[0].coupling.shape == (0, 5, 3)
    routed.parents.pose.sum().backward()
    assert torch.equal(bias.grad, torch.zeros(5, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_computes_in_float32(dtype):
    # The agreements of 1000 votes reach 5 · 60², the sum of the votes 60 000.
    votes = random_votes(1000, 3, 4).to(dtype) + 60
    half, wide = (self_attention_routing(v, keep="last") for v in (votes, votes.float()))
    for a, b in (
        (half.parents.pose, wide.parents.pose),
        (half.steps[0].coupling, wide.steps[0].coupling),
    ):
        assert a.dtype == dtype
        assert torch.equal(a, b.to(dtype))


def test_autocast_changes_nothing():
    votes, bias = random_votes(2, 5, 3, 4).float(), random_votes(5, 3).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = self_attention_routing(votes, bias=bias).parents.pose
    assert torch.equal(inside, self_attention_routing(votes, bias=bias).parents.pose)


@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 3),
    kind=st.sampled_from(["hinton", "exp", "none"]),
    exponent=st.integers(-30, 4),
    dead=st.floats(0, 1),
    twins=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_values_and_gradients_are_finite(sizes, kind, exponent, dead, twins, seed):
    generator = torch.Generator().manual_seed(seed)
    votes = torch.randn(2, *sizes, generator=generator) * 10.0**exponent
    votes = votes * (torch.rand(2, *sizes[:2], 1, generator=generator) >= dead)
    votes = (votes[:, :1].expand_as(votes) if twins else votes).clone().requires_grad_()
    routed = self_attention_routing(votes, squash=kind, keep="last")
    coupling = routed.steps[0].coupling
    (gradient,) = torch.autograd.grad(
        routed.parents.pose.sum() + routed.parents.activation.sum() + coupling.sum(), votes
    )
    for x in (*routed.parents, coupling, gradient):
        assert x.isfinite().all()
    if kind != "none":
        assert routed.parents.activation.max() <= 1 + 1e-6
    torch.testing.assert_close(coupling.sum(-1), torch.ones(2, sizes[0]))


VOTES = torch.zeros(2, 5, 3, 4)


@pytest.mark.parametrize(
    ("votes", "options", "message"),
    [
        (
            VOTES[0, 0],
            {},
            "votes must have the axes [*batch, child, parent, pose], at least three, but came with "
            "shape [3, 4]; one child or one parent still needs its axis: use unsqueeze.",
        ),
        (
            VOTES.long(),
            {},
            "votes must be floating point, but came as torch.int64; convert them with "
            "votes.float().",
        ),
        (
            VOTES[..., :0],
            {},
            "votes need at least one child, one parent and one pose component, but came with shape "
            "[2, 5, 3, 0]; only batch axes may be empty.",
        ),
        (
            VOTES,
            {"squash": "expo"},
            "squash='expo' is unknown; did you mean 'exp'? known: exp, hinton, none.",
        ),
        (
            VOTES,
            {"keep": "step"},
            "keep='step' is unknown; did you mean 'steps'? known: last, none, steps.",
        ),
        (
            VOTES,
            {"bias": torch.zeros(3, 5)},
            "bias must broadcast to [*batch, child, parent] = [2, 5, 3], but has shape [3, 5]; "
            "was it made for a layer of another size?",
        ),
    ],
)
def test_errors_say_what_to_mend(votes, options, message):
    with pytest.raises(TorchcapsError, match=f"^{re.escape(message)}$"):
        self_attention_routing(votes, **options)


def test_a_bias_follows_the_precision_of_the_votes():
    votes, bias = random_votes(5, 3, 4), torch.randn(5, 3)
    mixed = self_attention_routing(votes, bias=bias).parents.pose
    assert mixed.dtype == torch.float64
    assert torch.equal(mixed, self_attention_routing(votes, bias=bias.double()).parents.pose)


def test_sizes_can_be_asked_without_computing():
    routed = self_attention_routing(torch.empty(2, 5, 3, 4, device="meta"), keep="last")
    assert routed.parents.pose.shape == (2, 3, 4)
    assert routed.steps[0].coupling.shape == (2, 5, 3)
