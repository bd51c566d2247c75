"""Losses: the hinge's flat parts, weights, precision; sums are in losses_on_paper.toml."""

import math
from functools import partial

import pytest
import torch
from torch.nn import functional

from torchcaps import ops

LENGTHS = torch.tensor([[0.8, 0.3, 0.05]], dtype=torch.float64)


def test_index_and_zero_one_targets_agree():
    lengths, index = torch.rand(4, 3).double(), torch.tensor([2, 0, 1, 1])
    matrix = torch.eye(3)[index]
    for target in (matrix, matrix.long(), matrix.bool()):
        assert torch.equal(ops.margin_loss(lengths, target), ops.margin_loss(lengths, index))


@pytest.mark.parametrize(
    ("loss", "scores"),
    [
        (ops.margin_loss, [[0.95, 0.05, 0.1]]),
        # One class has nobody to lead.
        (partial(ops.spread_loss, margin=0.9), [[0.3], [0.8]]),
    ],
    ids=["within the margins", "one class"],
)
def test_loss_and_gradient_are_zero(loss, scores):
    scores = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    found = loss(scores, torch.zeros(len(scores), dtype=torch.int64))
    found.backward()
    assert found.item() == 0
    assert not scores.grad.any()


def test_spread_loss_sees_differences_alone():
    activations, target = torch.rand(5, 4).double(), torch.tensor([0, 2, 3, 1, 0])
    loss = ops.spread_loss(activations, target, margin=0.7)
    torch.testing.assert_close(loss, ops.spread_loss(activations + 3, target, margin=0.7))


@pytest.mark.parametrize(
    ("step", "margin"),
    [(0, 0.214), (100_000, 0.294), (200_000, 0.595), (300_000, 0.896), (500_000, 0.988)],
)
def test_spread_margin_of_the_released_code(step, margin):
    assert ops.spread_margin(step) == pytest.approx(margin, abs=5e-4)


def test_spread_margin_stops_growing():
    # step/50000 − 4 reaches 10 at 700,000
    end = 0.2 + 0.79 / (1 + math.exp(-10))
    assert (
        ops.spread_margin(699_000) < ops.spread_margin(700_000) == ops.spread_margin(10**9) == end
    )


def test_without_gamma_the_focal_loss_is_the_cross_entropy():
    scores, target = torch.randn(5, 4).double(), torch.tensor([0, 2, 3, 1, 0])
    found = ops.focal_loss(scores, target, scores_are="logits", gamma=0)
    torch.testing.assert_close(found, ops.cross_entropy_loss(scores, target))
    for each, scores_are in ((scores, "independent_logits"), (scores.sigmoid(), "lengths")):
        found = ops.focal_loss(each, target, scores_are=scores_are, gamma=0)
        binary = ops.binary_cross_entropy_loss(each, target, scores_are=scores_are)
        torch.testing.assert_close(found, binary)


@pytest.mark.parametrize("gamma", [0.5, 1, 2])
def test_a_certain_answer_has_a_finite_focal_loss(gamma):
    for scores_are, high in (("logits", 200.0), ("independent_logits", 200.0), ("lengths", 1.0)):
        scores = torch.tensor([[high, -high if high > 1 else 0.0]] * 2, requires_grad=True)
        ops.focal_loss(scores, torch.tensor([0, 1]), scores_are=scores_are, gamma=gamma).backward()
        assert scores.grad.isfinite().all()


binary, focal = ops.binary_cross_entropy_loss, ops.focal_loss
LOSSES = {
    "margin": ops.margin_loss,
    "spread": partial(ops.spread_loss, margin=0.6),
    "cross-entropy": ops.cross_entropy_loss,
    "binary of lengths": partial(binary, scores_are="lengths"),
    "binary of logits": partial(binary, scores_are="independent_logits"),
    "focal of lengths": partial(focal, scores_are="lengths", gamma=1.5),
    "focal of logits": partial(focal, scores_are="logits"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_weights_and_reductions_mean_what_they_mean_in_torch(name):
    """What torch's own makes of the losses of images, ours makes of these."""
    loss = LOSSES[name]
    scores, target = torch.rand((6, 4)).double(), torch.tensor([0, 2, 3, 2, 1, 2])
    weight = torch.tensor([0.0, 2.0, 0.5, 7.0]).double()
    plain = loss(scores, target, reduction="none")
    alone = [loss(scores[[k]], target[[k]]) for k in range(6)]
    torch.testing.assert_close(plain, torch.stack(alone))
    of_torch = functional.cross_entropy(scores, target, reduction="none")
    for reduction in ("mean", "sum", "none"):
        for weighed in (None, weight):
            wanted = functional.cross_entropy(scores, target, weighed, reduction=reduction)
            counts = torch.ones(6).double() if weighed is None else weighed[target]
            made = {
                "mean": lambda each, counts: (counts * each).sum() / counts.sum(),
                "sum": lambda each, counts: (counts * each).sum(),
                "none": lambda each, counts: counts * each,
            }[reduction]
            # What torch does, so that it is what is asked of ours.
            torch.testing.assert_close(made(of_torch, counts), wanted)
            found = loss(scores, target, weight=weighed, reduction=reduction)
            torch.testing.assert_close(found, made(plain, counts))


def test_what_a_weight_is_made_of_does_not_matter():
    scores, target = torch.rand((6, 4)), torch.tensor([0, 2, 3, 2, 1, 2])
    weight = torch.tensor([0.25, 2.0, 0.5, 7.0])
    for name, loss in LOSSES.items():
        assert loss(scores.bfloat16(), target, weight=weight).isfinite(), name
        single, double = (loss(scores, target, weight=x) for x in (weight, weight.double()))
        assert torch.equal(single, double), name


ALL_DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_certain_lengths_can_still_learn(dtype):
    # right and wrong certainty, each at zero and at one
    lengths = torch.tensor([[1.0, 0.0, 1.0, 0.0]], dtype=dtype, requires_grad=True)
    target = torch.tensor([[1, 0, 0, 1]])
    with torch.autocast("cpu", torch.bfloat16):
        loss = ops.binary_cross_entropy_loss(lengths, target, scores_are="lengths")
    loss.backward()
    epsilon = torch.finfo(dtype).eps
    # two are wrong: −2 log ε; two are right but for ε each
    assert loss.item() == pytest.approx(-2 * math.log(epsilon) + 2 * epsilon, rel=1e-3)
    assert lengths.grad.isfinite().all()
    assert lengths.grad.sign().tolist() == [[-1, 1, 1, -1]]
    slope = (1 - 2 * epsilon) / epsilon
    assert lengths.grad[0, 2:].tolist() == pytest.approx([slope, -slope], rel=epsilon)


def test_a_length_rounded_above_one_counts_as_one():
    target = torch.tensor([[1, 0]])
    above, one = (
        ops.binary_cross_entropy_loss(torch.tensor([[x, x]]), target, scores_are="lengths")
        for x in (1.0000002, 1.0)
    )
    assert torch.equal(above, one)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_large_reconstruction_loss_of_half_precision_is_finite(dtype):
    drawn = torch.zeros(1, 1, 300, 300, dtype=dtype, requires_grad=True)
    # 300² ones: more than float16 holds, and than bfloat16 tells from 90,112.
    loss = ops.reconstruction_loss(drawn, torch.ones_like(drawn))
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.item() == 90_000
    assert drawn.grad.unique().tolist() == [-2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    lengths = LENGTHS.to(dtype).requires_grad_()
    loss = ops.margin_loss(lengths, torch.tensor([2]))
    loss.backward()
    assert loss.dtype == dtype
    assert loss.item() == pytest.approx(0.9875, rel=4 * torch.finfo(dtype).eps)
    # −2 (0.9 − 0.05) for the class that is there
    assert lengths.grad[0, 2].item() == pytest.approx(-1.7, rel=4 * torch.finfo(dtype).eps)


# Margin loss stays as narrow as its lengths.
WIDENED = [name for name in LOSSES if name != "margin"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize("name", WIDENED)
def test_half_precision_is_widened(name, autocast, dtype):
    # exact in both: 0.75, 0.5, 0.125
    half = torch.tensor([[0.75, 0.5, 0.125]], dtype=dtype, requires_grad=True)
    wide = half.detach().float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        made = LOSSES[name](half, torch.tensor([0]))
    expected = LOSSES[name](wide, torch.tensor([0]))
    made.backward()
    expected.backward()
    assert made.dtype == torch.float32
    # the ε of the lengths is that of their own dtype
    of_lengths = name.endswith("lengths")
    near = torch.finfo(dtype).eps * (8 if of_lengths else 1)
    exact = near if of_lengths else 1e-6
    torch.testing.assert_close(made, expected, rtol=exact, atol=exact)
    torch.testing.assert_close(half.grad.float(), wide.grad, rtol=near, atol=near)


def test_indices_of_any_integer_type_are_classes():
    for loss in LOSSES.values():
        index = torch.tensor([2])
        for dtype in (torch.int32, torch.uint8):
            assert torch.equal(loss(LENGTHS, index.to(dtype)), loss(LENGTHS, index))
