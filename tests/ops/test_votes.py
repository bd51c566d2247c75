"""Votes: parity with the twin, equivariance, precision; products on paper are in on_paper.toml."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from reference.votes import materialise as twin
from torchcaps.ops import dynamic_routing, inverted_routing, materialise
from torchcaps.types import Capsules, VoteMap, Window

WINDOW = Window((3, 3, 2), (2, 2), (1, 1))


def votes_of(children, weight, /, **options):
    return materialise(VoteMap(Capsules(children), weight, **options))


def test_matrix_votes_turn_with_the_pose():
    # (g M) W = g (M W)
    pose, weight, g = (torch.randn(*s).double() for s in [(2, 5, 3, 3), (5, 4, 3, 3), (3, 3)])
    turned = votes_of((g @ pose).flatten(-2), weight, pose="matrix")
    votes = votes_of(pose.flatten(-2), weight, pose="matrix").unflatten(-1, (3, 3))
    torch.testing.assert_close(turned, (g @ votes).flatten(-2), rtol=0, atol=1e-12)


LEADING = [(), (1,), (3,), (2, 1, 2)]
CASES = [
    (kind, sharing, with_bias)
    for kind in ("vector", "matrix")
    for sharing in ("none", "type", "all")
    for with_bias in (False, True)
]


@pytest.mark.parametrize(("kind", "sharing", "with_bias"), CASES)
def test_parity_with_the_twin(kind, sharing, with_bias, device, dtype, tolerance):
    for lead in LEADING:
        for n_in, types, n_out in ((6, 3, 5), (1, 1, 3), (4, 2, 1)):
            d_in, block = (3, (5, 3)) if kind == "vector" else (4, (2, 2))
            rows = {"none": (n_in,), "type": (types,), "all": ()}[sharing]
            pose = torch.randn(*lead, n_in, d_in, dtype=torch.float64)
            weight = torch.randn(*rows, n_out, *block, dtype=torch.float64)
            d_out = 5 if kind == "vector" else 4
            bias = torch.randn(n_out, d_out, dtype=torch.float64) if with_bias else None
            theirs = [x.requires_grad_() for x in (pose, weight, bias) if x is not None]
            ours = [x.detach().to(device, dtype).requires_grad_() for x in theirs]
            votes = votes_of(
                *ours[:2], sharing=sharing, pose=kind, bias=ours[2] if with_bias else None
            )
            expected = twin(*theirs[:2], sharing=sharing, kind=kind, bias=bias)
            assert votes.shape == (*lead, n_in, n_out, d_out)
            mix = torch.randn_like(expected)
            gradients = torch.autograd.grad((votes * mix.to(votes)).sum(), ours)
            expected_gradients = torch.autograd.grad((expected * mix).sum(), theirs)
            pairs = zip((votes, *gradients), (expected, *expected_gradients), strict=True)
            for a, b in pairs:
                torch.testing.assert_close(a.cpu().double(), b, rtol=0, atol=tolerance)


def test_empty_batch():
    weight = torch.randn(4, 3, 5, 2, requires_grad=True)
    votes = votes_of(torch.zeros(0, 4, 2), weight)
    assert votes.shape == (0, 4, 3, 5)
    votes.sum().backward()
    assert torch.equal(weight.grad, torch.zeros_like(weight))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["vector", "matrix"])
def test_half_precision(kind, dtype):
    pose, weight = torch.randn(2, 5, 4).to(dtype), torch.randn(5, 3, 2, 2).to(dtype)
    if kind == "vector":
        weight = weight.reshape(5, 3, 1, 4)
    votes = votes_of(pose, weight, pose=kind)
    assert votes.dtype == dtype
    exact = votes_of(pose.double(), weight.double(), pose=kind)
    torch.testing.assert_close(votes.double(), exact, rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_autocast_may_mix_dtypes():
    pose, weight = torch.randn(5, 4).bfloat16(), torch.randn(5, 3, 2, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert votes_of(pose, weight).dtype == torch.bfloat16


class Copied(TorchDispatchMode):
    """The sizes of what was copied."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.clone.default:
            self.sizes.append(args[0].numel())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("route", [dynamic_routing, inverted_routing])
@pytest.mark.parametrize(
    ("weight", "options"),
    [
        (torch.randn(18, 5, 6, 4), {}),
        (torch.randn(2, 5, 2, 2), {"sharing": "type", "pose": "matrix"}),
        (torch.randn(2, 5, 2, 2), {"sharing": "type", "pose": "matrix", "window": WINDOW}),
    ],
)
def test_no_product_of_one_row_copies_votes(route, weight, options):
    """Neither forwards nor backwards: votes are the largest tensor there is."""
    votes = votes_of(torch.randn(3, 18, 4), weight, **options).requires_grad_()
    with Copied() as copied:
        route(votes, iterations=3).parents.pose.square().sum().backward()
    assert max(copied.sizes, default=0) < votes.numel()
