"""Convolution with large kernels through Fourier space, as products of real matrices.

A stride s splits a map and a kernel into s² phases, which are added like channels; what is left is
a correlation of maps of n = m + r − 1 points a side with kernels of r points to m points, stride 1.
A discrete Fourier transform of n points a side turns it into one product a frequency, exact for
those m points. Real maps need half of the frequencies; of these a real one takes one real product
and a complex one three:

    ŷ = x̂ ŵ*,   Re ŷ = p₁ + p₂,   Im ŷ = p₃ − p₁ + p₂
    p₁ = Re x̂ Re ŵ,   p₂ = Im x̂ Im ŵ,   p₃ = (Re x̂ + Im x̂)(Re ŵ − Im ŵ)

so that with constant matrices A, B, C [k products, points]

    y[b, o] = C ( Σ_c (A x[b, c]) ⊙ (B w[c, o]) ),

three thin matrix products and k large ones. CapsNet's 9×9 kernels with stride 2 on 20×20 points
have k = 148 products for 4 phases instead of 36 · 81: a fifth of the multiplications. Gradients are
the transposes of the same.

Departures:
1. Rounding errors of float32 and float64 are as large as those of a direct convolution, but shared
   by a whole map: relative to its largest value, not to each. So one NaN or infinity makes all of
   its sample NaN.
2. bfloat16 is rounded between the products, whose sums are float32: from the same rounded numbers
   it errs three times as much as a direct convolution does. float16 is widened.
Ambiguities: none.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from torchcaps.ops.checks import widen, without_autocast

__all__ = ["fourier_convolution", "saving"]

Pair = tuple[int, int]
Numbers = NDArray[np.float64]
# What is made at a time, so small that malloc reuses it and its pages need no zeros.
PART_BYTES = 28 << 20
MOST_POINTS = 32 * 32


def fourier_convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, stride: Pair, padding: Pair
) -> Tensor:
    """`torch.nn.functional.conv2d` of maps [b, c, h, w] and kernels [o, c, h, w]."""
    plan = _plan(x.shape, weight.shape, stride, padding)
    # Sums over a whole map have room in bfloat16, but not in float16.
    maps, kernels = (each.float() if x.dtype == torch.float16 else each for each in (x, weight))
    # Not kept as tensors: whoever traces makes fake ones.
    a, b, c = (
        torch.from_numpy(matrix).to(x.device, widen(maps).dtype)
        for matrix in _matrices(plan.points, plan.taps, plan.outputs)
    )
    y: Tensor = _Products.apply(
        _phases(_points_first(maps), plan.points, stride, before=padding),
        _phases(_points_first(kernels), plan.taps, stride),
        a,
        b,
        c,
    )
    y = (y if bias is None else y + bias).to(x.dtype)
    y = y.view(*plan.outputs, *y.shape[1:]).permute(2, 3, 0, 1)
    last = torch.channels_last
    lies_so = any(t.is_contiguous(memory_format=last) > t.is_contiguous() for t in (x, weight))
    return y.contiguous(memory_format=last if lies_so else torch.contiguous_format)


def saving(x: torch.Size, weight: torch.Size, *, stride: Pair, padding: Pair) -> float:
    """How many multiplications of a direct convolution there are to one of `fourier_convolution`,
    in a forward pass; 0 where there is no output, or a map so large that its matrices are."""
    plan = _plan(x, weight, stride, padding)
    if min(plan.outputs) < 1 or math.prod(plan.points) > MOST_POINTS:
        return 0.0
    batch, (c_out, c_in) = x[0], weight[:2]
    outputs, phases = math.prod(plan.outputs), math.prod(stride)
    direct = outputs * math.prod(weight[2:]) * c_in * batch * c_out
    products = _products(plan.points)
    ours = products * (
        phases * c_in * (math.prod(plan.points) * batch + math.prod(plan.taps) * c_out)
        + phases * c_in * batch * c_out
        + outputs * batch * c_out
    )
    return direct / max(ours, 1)


class _Plan(NamedTuple):
    """Sizes of one phase, each (height, width): of the map, the kernel and what comes out."""

    points: Pair
    taps: Pair
    outputs: Pair


def _plan(x: torch.Size, weight: torch.Size, stride: Pair, padding: Pair) -> _Plan:
    sides = [
        (-(-kernel // step), (side + 2 * pad - kernel) // step + 1)
        for side, kernel, step, pad in zip(x[2:], weight[2:], stride, padding, strict=True)
    ]
    (r_h, m_h), (r_w, m_w) = sides
    return _Plan((m_h + r_h - 1, m_w + r_w - 1), (r_h, r_w), (m_h, m_w))


def _points_first(maps: Tensor) -> Tensor:
    """[a, c, h, w] as [h, w, a, c]."""
    if maps.is_contiguous():
        # A transposed matrix is copied by blocks, other orders of axes number by number.
        points = maps.flatten(2).flatten(0, 1).t().contiguous()
        return points.view(*maps.shape[2:], *maps.shape[:2])
    return maps.permute(2, 3, 0, 1)


def _phases(maps: Tensor, points: Pair, stride: Pair, before: Pair = (0, 0)) -> Tensor:
    """[h, w, a, c] as [points, a, phases · c], zeros where there is nothing."""
    pads = [
        (pad, count * step - side - pad)
        for side, count, step, pad in zip(maps.shape[:2], points, stride, before, strict=True)
    ]
    (top, bottom), (left, right) = pads
    if any((top, bottom, left, right)):
        maps = F.pad(maps, (0, 0, 0, 0, left, right, top, bottom))
    split = maps.view(points[0], stride[0], points[1], stride[1], *maps.shape[2:])
    return split.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(0, 1)


def _products(points: Pair) -> int:
    """Of real numbers: three for each pair of conjugate frequencies, one for the others."""
    own = math.prod(1 + (n % 2 == 0) for n in points)
    return own + 3 * (math.prod(points) - own) // 2


@lru_cache(maxsize=8)
def _matrices(points: Pair, taps: Pair, outputs: Pair) -> tuple[Numbers, Numbers, Numbers]:
    """A [k, points], B [k, taps], C [outputs, k]."""
    rows_a, rows_b, rows_c = [], [], []
    for u, v in np.ndindex(points):
        conjugate = ((-u) % points[0], (-v) % points[1])
        if (u, v) > conjugate:
            continue
        turn = 2 * np.pi * np.array([u / points[0], v / points[1]])
        x, w, y = (_grid(sides) @ turn for sides in (points, taps, outputs))
        share = 1 / math.prod(points)
        if (u, v) == conjugate:
            rows_a.append(np.cos(x))
            rows_b.append(np.cos(w))
            rows_c.append(share * np.cos(y))
            continue
        rows_a += [np.cos(x), -np.sin(x), np.cos(x) - np.sin(x)]
        rows_b += [np.cos(w), -np.sin(w), np.cos(w) + np.sin(w)]
        # Twice, for the conjugate frequency: Re ŷ cos − Im ŷ sin.
        cos, sin = 2 * share * np.cos(y), 2 * share * np.sin(y)
        rows_c += [cos + sin, cos - sin, -sin]
    return np.stack(rows_a), np.stack(rows_b), np.stack(rows_c, 1)


def _grid(sides: Pair) -> Numbers:
    """Every (y, x), one a row."""
    return np.indices(sides).reshape(2, -1).T.astype(np.float64)


class _Products(torch.autograd.Function):
    """[points, b, c], [taps, o, c] → [outputs, b, o]. Some products at a time, made again for the
    gradient. Sums are in the precision of the matrices."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        y = c.new_zeros(len(c), x.shape[1] * weight.shape[1])
        for some in _parts(x, weight, len(a)):
            maps, kernels = _transformed(a[some], x), _transformed(b[some], weight)
            _add(y, c[:, some], torch.bmm(maps, kernels.transpose(1, 2)))
        return y.view(len(c), x.shape[1], weight.shape[1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        with without_autocast(gradient):
            return *_gradients(ctx.needs_input_grad[:2], gradient, *ctx.saved_tensors), *(None,) * 3


def _gradients(
    needs: tuple[bool, bool],
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    gradient = gradient.to(x.dtype)
    of_x, of_weight = (
        torch.zeros_like(each.flatten(1), dtype=c.dtype) if needed else None
        for each, needed in zip((x, weight), needs, strict=True)
    )
    for some in _parts(x, weight, len(a)):
        of_products = _transformed(c[:, some].t(), gradient)
        if of_x is not None:
            kernels = _transformed(b[some], weight)
            _add(of_x, a[some].t(), torch.bmm(of_products, kernels))
        if of_weight is not None:
            maps = _transformed(a[some], x)
            _add(of_weight, b[some].t(), torch.bmm(of_products.transpose(1, 2), maps))
    return (
        None if of_x is None else of_x.view_as(x).to(x.dtype),
        None if of_weight is None else of_weight.view_as(weight).to(weight.dtype),
    )


def _parts(x: Tensor, weight: Tensor, products: int) -> list[slice]:
    # Half precision is added up in float32.
    made = (x[:1].numel(), weight[:1].numel(), x.shape[1] * weight.shape[1])
    largest = max(made) * max(4, x.itemsize)
    count = max(1, PART_BYTES // max(largest, 1))
    return [slice(start, start + count) for start in range(0, products, count)]


def _transformed(matrix: Tensor, values: Tensor) -> Tensor:
    """The matrix times the first axis."""
    product = torch.mm(matrix.to(values.dtype), values.flatten(1))
    return product.view(len(matrix), *values.shape[1:])


@register_flop_formula(torch.ops.aten.addmm_)
def _flops_of_adding(sums: Any, matrix: Sequence[int], values: Sequence[int], **_: object) -> int:
    """Torch counts addmm, but not in place."""
    return 2 * matrix[0] * matrix[1] * values[1]


def _add(sums: Tensor, matrix: Tensor, values: Tensor) -> None:
    """Add the matrix times the first axis."""
    sums.addmm_(matrix, values.flatten(1).to(sums.dtype))
