"""How the sums of one iteration lead to the query of the next, of parents alone, and back.

    agreement   q_{t+1} = q_t + α g(s_t + bias)       dynamic routing, A: all parents so far
    present     q_{t+1} = scale LayerNorm(s_t)        inverted and self-attention routing

`back` is the transpose of the derivative of `query`. It is written out because an operator of the
dispatcher cannot ask autograd.
"""

from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from torchcaps.ops.routing.common import biased
from torchcaps.ops.routing.inverted import NORM_GUARD, centred, normalised
from torchcaps.ops.squashing import EPSILON, Squash
from torchcaps.ops.squashing import squash as g

# Gradients of the query before, of the sums, and of the weight and the bias of a rule.
Back = tuple[Tensor | None, Tensor, Tensor | None, Tensor | None]


class Rule(Protocol):
    """All tensors are [b, p, j, d]; of parameters each axis may be one."""

    def query(self, before: Tensor | None, sums: Tensor) -> Tensor: ...

    def back(self, sums: Tensor, of_query: Tensor) -> Back: ...


@dataclass(frozen=True)
class Agreement:
    """A_{t+1} = A_t + α v_t, with v_t = g(s_t + bias), the bias perhaps on the side of s_t."""

    squash: str
    odd_bias: bool
    bias: Tensor | None
    factor: Tensor | None = None  # α, [1, 1, 1, 1]

    def query(self, before: Tensor | None, sums: Tensor) -> Tensor:
        v = self.parents(sums)
        v = v if self.factor is None else self.factor * v
        return v if before is None else before + v

    def back(self, sums: Tensor, of_query: Tensor) -> Back:
        of_parents, of_factor = of_query, None
        if self.factor is not None:
            of_parents = self.factor * of_query
            of_factor = (of_query * self.parents(sums)).sum().reshape(self.factor.shape)
        of_sums = squash_gradient(biased(sums, self.bias, self.odd_bias), of_parents, self.squash)
        of_bias = None
        if self.bias is not None:
            of_bias = of_sums
            if self.odd_bias:
                of_bias = of_sums * (sums * self.bias).sum(-1, keepdim=True).sign()
            of_bias = of_bias.sum_to_size(self.bias.shape)
        return of_query, of_sums, of_factor, of_bias

    def parents(self, sums: Tensor) -> Tensor:
        return squashed(biased(sums, self.bias, self.odd_bias), cast(Squash, self.squash))


@dataclass(frozen=True)
class Present:
    """scale LayerNorm(s), or scale s where there is no norm: only the present parents count. A
    weight without a bias is a factor on s, [1, 1, 1, 1]."""

    scale: float
    weight: Tensor | None
    bias: Tensor | None

    def query(self, before: Tensor | None, sums: Tensor) -> Tensor:
        return self.parents(sums)

    def parents(self, sums: Tensor) -> Tensor:
        if self.weight is None or self.bias is None:
            return self._factor() * sums
        return self.scale * normalised(sums, self.weight, self.bias)

    def back(self, sums: Tensor, of_query: Tensor) -> Back:
        if self.weight is None or self.bias is None:
            of_factor = None
            if self.weight is not None:
                of_factor = self.scale * (of_query * sums).sum().reshape(self.weight.shape)
            return None, self._factor() * of_query, of_factor, None
        of_query = self.scale * of_query
        x, size, norm = centred(sums), sums.shape[-1:], (self.weight, self.bias)
        _, mean, rstd = torch.native_layer_norm(x, size, *norm, NORM_GUARD)
        of_sums, of_weight, of_bias = torch.ops.aten.native_layer_norm_backward(
            of_query, x, size, mean, rstd, *norm, [True, True, True]
        )
        return None, centred(of_sums), of_weight, of_bias

    def _factor(self) -> float | Tensor:
        return self.scale if self.weight is None else self.scale * self.weight


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
