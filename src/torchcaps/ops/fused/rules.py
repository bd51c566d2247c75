"""How sums become parents, by a squash whose gradient is written out."""

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from torchcaps.ops.squashing import EPSILON, Squash
from torchcaps.ops.squashing import squash as g


class Agreement(NamedTuple):
    """v = g(s + bias), the bias perhaps on the side of s. All tensors are [b, p, j, d]; of the bias
    each axis may be one."""

    squash: Squash
    odd: bool
    bias: Tensor | None

    def parents(self, sums: Tensor) -> Tensor:
        return squashed(biased(sums, self.bias, self.odd), self.squash)


def biased(s: Tensor, bias: Tensor | None, odd: bool) -> Tensor:
    """Add the bias to s, or the one of bias and −bias that lies on its side."""
    if bias is None:
        return s
    return s + ((s * bias).sum(-1, keepdim=True).sign() * bias if odd else bias)


def squashed(s: Tensor, kind: Squash) -> Tensor:
    """Give g(s). Of poses of one number the gradient is `squash_gradient`: that of PyTorch is there
    the difference of two numbers that nearly cancel."""
    if s.shape[-1] != 1 or kind == "none":
        return g(s, kind)
    return cast(Tensor, _Squashed.apply(s, kind))


class _Squashed(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(s: Tensor, kind: Squash) -> Tensor:
        return g(s, kind)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Squash], output: Tensor) -> None:
        s, ctx.kind = inputs
        ctx.save_for_backward(s)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (s,) = ctx.saved_tensors
        return squash_gradient(s, gradient, ctx.kind), None


def squash_gradient(s: Tensor, gradient: Tensor, kind: str) -> Tensor:
    """Give g(s) = ‖v‖ u, u = s / ‖s‖: what lies across u in the gradient of v is scaled as s is,
    what lies along it by the slope of the length. A sum of both would lose the slope of a long s.
    """
    if kind == "none":
        return gradient
    square = (s * s).sum(-1, keepdim=True)
    norm = torch.sqrt(square + EPSILON)
    if kind == "hinton":
        f = square / (1 + square) / norm
        slope = 2 * norm / (1 + square) / (1 + square)
    else:
        f = -torch.expm1(-norm) / norm
        slope = torch.exp(-norm)
    u = s / norm
    along = (u * gradient).sum(-1, keepdim=True) * u
    return f * (gradient - along) + slope * along
