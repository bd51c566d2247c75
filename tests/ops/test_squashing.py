"""Squash: its laws, its guard at zero, half precision; numbers on paper are in on_paper.toml."""

import importlib
import math

import pytest
import torch

import torchcaps as tc
from torchcaps.ops import squash

KINDS = ["hinton", "exp", "none"]
SQUASHES = ["hinton", "exp"]


def poses(*shape, device="cpu", dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype).to(device)


def test_hinton_is_the_default():
    pose = poses(4, 3)
    assert torch.equal(squash(pose), squash(pose, "hinton"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_negation_is_exact(kind, dtype):
    pose = poses(50, 7, dtype=dtype)
    assert torch.equal(squash(-pose, kind), -squash(pose, kind))


@pytest.mark.parametrize("kind", SQUASHES)
def test_length_is_below_one_and_grows(kind):
    norms = torch.logspace(-6, 1, 200, dtype=torch.float64)
    direction = torch.nn.functional.normalize(poses(5), dim=0)
    lengths = squash(norms[:, None] * direction, kind).norm(dim=-1)
    assert lengths[0] > 0
    assert (lengths.diff() > 0).all()
    assert lengths[-1] < 1


@pytest.mark.parametrize("kind", SQUASHES)
def test_direction_is_kept_and_turns_with_the_pose(kind):
    pose = poses(20, 4)
    cosine = torch.nn.functional.cosine_similarity(squash(pose, kind), pose, dim=-1)
    torch.testing.assert_close(cosine, torch.ones_like(cosine), rtol=0, atol=1e-12)
    turn, _ = torch.linalg.qr(poses(4, 4))
    torch.testing.assert_close(
        squash(pose @ turn, kind), squash(pose, kind) @ turn, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("kind", SQUASHES)
@pytest.mark.parametrize("norm", [0.03, 0.3, 3.0])
def test_guard_bends_lengths_by_no_more_than_its_worth(kind, norm):
    exact = norm**2 / (1 + norm**2) if kind == "hinton" else 1 - math.exp(-norm)
    length = squash(torch.tensor([norm], dtype=torch.float64), kind).item()
    assert -1e-15 <= exact - length <= exact * 1e-8 / (2 * norm**2) + 1e-15


def test_jacobian_at_zero():
    zero = torch.zeros(4, dtype=torch.float64)
    hinton = torch.autograd.functional.jacobian(lambda s: squash(s, "hinton"), zero)
    assert torch.equal(hinton, torch.zeros(4, 4, dtype=torch.float64))
    # (1 − exp(−√ε)) / √ε with √ε = 1e-4: 1 − 1e-4/2 + 1e-8/6 = 0.99995000167
    exp = torch.autograd.functional.jacobian(lambda s: squash(s, "exp"), zero)
    torch.testing.assert_close(
        exp, 0.99995000167 * torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("kind", SQUASHES)
@pytest.mark.parametrize(("dtype", "eps"), [(torch.float16, 1e-3), (torch.bfloat16, 8e-3)])
def test_half_precision_is_rounded_once(kind, dtype, eps):
    # 300² does not fit into float16; the length is 1 all the same.
    pose = torch.cat([poses(20, 3), 300 * poses(20, 3)]).to(dtype)
    result = squash(pose, kind)
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), squash(pose.double(), kind), rtol=eps, atol=1e-6)


def test_no_module_is_hidden_behind_the_function():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("torchcaps.ops.squash")
    assert tc.ops.squash is squash
