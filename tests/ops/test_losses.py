"""Losses: sums on paper, the hinge's flat parts, parity with the twin, errors about the target."""

import pytest
import torch

from reference.losses import margin_loss as margin_twin
from reference.losses import reconstruction_loss as reconstruction_twin
from torchcaps.errors import TorchcapsError
from torchcaps.ops import margin_loss, reconstruction_loss

LENGTHS = torch.tensor([[0.8, 0.3, 0.05]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("target", "options", "expected"),
    [
        # (0.9 − 0.8)² + 0.5 (0.3 − 0.1)² + 0 = 0.01 + 0.02
        ([0], {}, 0.03),
        # 0.5 (0.8 − 0.1)² + 0.5 (0.3 − 0.1)² + (0.9 − 0.05)² = 0.245 + 0.02 + 0.7225
        ([2], {}, 0.9875),
        # (0.9 − 0.8)² + (0.9 − 0.3)² + 0 = 0.01 + 0.36
        ([[1, 1, 0]], {}, 0.37),
        # 0.5 (0.7² + 0.2²) + 0
        ([[0, 0, 0]], {}, 0.265),
        # λ = 1: 0.01 + 0.04
        ([0], {"lambda_": 1.0}, 0.05),
        # m⁺ = 0.95, m⁻ = 0.05, λ = 0.8: 0.15² + 0.8 · 0.25² + 0
        ([0], {"m_plus": 0.95, "m_minus": 0.05, "lambda_": 0.8}, 0.0725),
    ],
)
def test_margin_loss_on_paper(target, options, expected):
    loss = margin_loss(LENGTHS, torch.tensor(target), **options)
    assert loss.item() == pytest.approx(expected, abs=1e-15)


def test_margin_loss_is_the_mean_of_its_samples():
    lengths, target = torch.rand(5, 3).double(), torch.tensor([0, 2, 1, 1, 0])
    each = [margin_loss(lengths[b : b + 1], target[b : b + 1]) for b in range(5)]
    torch.testing.assert_close(margin_loss(lengths, target), torch.stack(each).mean())


def test_index_and_zero_one_targets_agree():
    lengths, index = torch.rand(4, 3).double(), torch.tensor([2, 0, 1, 1])
    matrix = torch.eye(3)[index]
    for target in (matrix, matrix.long(), matrix.bool()):
        assert torch.equal(margin_loss(lengths, target), margin_loss(lengths, index))


def test_within_the_margins_loss_and_gradient_are_zero():
    lengths = torch.tensor([[0.95, 0.05, 0.1]], dtype=torch.float64, requires_grad=True)
    loss = margin_loss(lengths, torch.tensor([0]))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(lengths.grad, torch.zeros_like(lengths))


@pytest.mark.parametrize("multi_hot", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (3, 7)], ids=str)
def test_margin_loss_parity_with_the_twin(multi_hot, shape, device, dtype, tolerance):
    theirs = torch.rand(shape, dtype=torch.float64).mul(1.2).requires_grad_()
    mine = theirs.detach().to(device, dtype).requires_grad_()
    if multi_hot:
        target = torch.rand(shape) < 0.4
        present = [set(row.nonzero().flatten().tolist()) for row in target]
    else:
        target = torch.randint(shape[1], shape[:1])
        present = [{k} for k in target.tolist()]
    options = {"m_plus": 0.85, "m_minus": 0.2, "lambda_": 0.7}
    loss = margin_loss(mine, target.to(device), **options)
    expected = margin_twin(theirs, present, **options)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss.cpu().double(), expected, rtol=0, atol=tolerance)
    torch.testing.assert_close(mine.grad.cpu().double(), theirs.grad, rtol=0, atol=tolerance)


def test_reconstruction_loss_on_paper():
    # image one: 1² + 2², image two: 3²; mean of 5 and 9
    made = torch.tensor([[[[1.0, 2.0]]], [[[0.0, 3.0]]]])
    assert reconstruction_loss(made, torch.zeros(2, 1, 1, 2)).item() == 7


def test_reconstruction_loss_parity_with_the_twin(device, dtype, tolerance):
    theirs = torch.rand(3, 2, 5, 3, dtype=torch.float64).requires_grad_()
    image = torch.rand(3, 2, 5, 3, dtype=torch.float64)
    mine = theirs.detach().to(device, dtype).requires_grad_()
    loss, expected = (
        reconstruction_loss(mine, image.to(mine)),
        reconstruction_twin(theirs, image),
    )
    loss.backward()
    expected.backward()
    scale = expected.item()
    torch.testing.assert_close(loss.cpu().double(), expected, rtol=0, atol=scale * tolerance)
    torch.testing.assert_close(mine.grad.cpu().double(), theirs.grad, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    lengths = LENGTHS.to(dtype).requires_grad_()
    loss = margin_loss(lengths, torch.tensor([2]))
    loss.backward()
    assert loss.dtype == dtype
    assert loss.item() == pytest.approx(0.9875, rel=4 * torch.finfo(dtype).eps)
    # −2 (0.9 − 0.05) for the class that is there
    assert lengths.grad[0, 2].item() == pytest.approx(-1.7, rel=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("shape", "target", "message"),
    [
        (
            (2, 3),
            torch.zeros(3, dtype=torch.long),
            "target must be class indices [2] of an integer type or a zero-one matrix [2, 3], but "
            "came as torch.int64 with shape [3].",
        ),
        (
            (2, 3),
            torch.zeros(2),
            "target must be class indices [2] of an integer type or a zero-one matrix [2, 3], but "
            "came as torch.float32 with shape [2].",
        ),
        (
            (3,),
            torch.zeros(3, dtype=torch.long),
            "lengths must be [batch, class], but came with shape [3].",
        ),
    ],
)
def test_wrong_target_is_explained(shape, target, message):
    with pytest.raises(TorchcapsError) as caught:
        margin_loss(torch.rand(shape), target)
    assert str(caught.value) == message


def test_wrong_image_is_explained():
    with pytest.raises(TorchcapsError) as caught:
        reconstruction_loss(torch.zeros(2, 1, 28, 28), torch.zeros(2, 1, 32, 32))
    assert str(caught.value) == (
        "reconstruction and image must have one shape, but have [2, 1, 28, 28] and [2, 1, 32, 32]; "
        "was the decoder built for another image size?"
    )


def test_indices_of_any_integer_type_are_classes():
    for dtype in (torch.int32, torch.uint8):
        target = torch.tensor([0], dtype=dtype)
        assert margin_loss(LENGTHS, target).item() == pytest.approx(0.03)


def test_a_flag_is_no_class():
    with pytest.raises(TorchcapsError, match=r"but came as torch.bool with shape \[1\]"):
        margin_loss(LENGTHS, torch.tensor([True]))


@pytest.mark.parametrize(("target", "span"), [([3], "3 to 3"), ([-1], "-1 to -1")])
def test_a_label_out_of_range_is_explained(target, span):
    with pytest.raises(
        TorchcapsError, match=f"^target must be 0 to 2 for 3 classes.* from {span};"
    ):
        margin_loss(LENGTHS, torch.tensor(target))
