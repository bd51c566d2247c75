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

three thin matrix products and k large ones, for some channels at a time. CapsNet's 9×9 kernels with
stride 2 on 20×20 points have k = 148 products for 4 phases instead of 36 · 81: a fifth of the
multiplications. Gradients are the transposes of the same.

Departures:
1. Rounding errors of float32 and float64 are as large as those of a direct convolution, but shared
   by a whole map: relative to its largest value, not to each. So one NaN or infinity makes all of
   its sample NaN.
2. bfloat16 is rounded between the products, whose sums over channels are float32: from the same
   rounded numbers it errs three times as much as a direct convolution does. float16 is widened.
Ambiguities: none.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from torchcaps.ops.checks import widen, without_autocast

Pair = tuple[int, int]
Numbers = NDArray[np.float64]
# What is made of maps, or of kernels, at a time: so small that malloc reuses it and its pages need
# no zeros. Beside it are the sums over channels, a number for every product, sample and output.
PART_BYTES = 28 << 20
MOST_POINTS = 32 * 32


def fourier_convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, stride: Pair, padding: Pair
) -> Tensor:
    """Compute `torch.nn.functional.conv2d` of maps [b, c, h, w] and kernels [o, c, h, w]."""
    plan = _plan(x.shape, weight.shape, stride, padding)
    # Sums over a whole map have room in bfloat16, but not in float16.
    maps, kernels = (each.float() if x.dtype == torch.float16 else each for each in (x, weight))
    # Not kept as tensors: whoever traces makes fake ones.
    a, b, c = (
        torch.from_numpy(matrix).to(x.device, widen(maps).dtype)
        for matrix in _matrices(plan.points, plan.taps, plan.outputs)
    )
    y: Tensor = _Products.apply(maps, kernels, a, b, c, plan, stride, padding)
    y = (y if bias is None else y + bias).to(x.dtype)
    y = y.view(*plan.outputs, *y.shape[1:]).permute(2, 3, 0, 1)
    last = torch.channels_last
    lies_so = any(t.is_contiguous(memory_format=last) > t.is_contiguous() for t in (x, weight))
    return y.contiguous(memory_format=last if lies_so else torch.contiguous_format)


def saving(x: torch.Size, weight: torch.Size, *, stride: Pair, padding: Pair) -> float:
    """Say how many multiplications of a direct convolution there are to one of
    `fourier_convolution`, in a forward pass; 0 where there is no output, or a map so large that its
    matrices are."""
    plan = _plan(x, weight, stride, padding)
    if min(plan.outputs) < 1 or math.prod(plan.points) > MOST_POINTS:
        return 0.0
    batch, (c_out, c_in) = x[0], weight[:2]
    outputs, phases = math.prod(plan.outputs), math.prod(stride)
    direct = outputs * math.prod(weight[2:]) * c_in * batch * c_out
    products = _count_products(plan.points)
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


def _in_phases(maps: Tensor, points: Pair, stride: Pair, before: Pair = (0, 0)) -> Tensor:
    """Give [a, c, h, w] as [points, phases · c, a], zeros where there is nothing."""
    maps = F.pad(_samples_last(maps), _around(maps, points, stride, before))
    split = maps.unflatten(0, (points[0], stride[0])).unflatten(2, (points[1], stride[1]))
    laid: Tensor = split.permute(0, 2, 1, 3, 4, 5).flatten(2, 4).flatten(0, 1)
    return laid


def _from_phases(
    values: Tensor, maps: Tensor, points: Pair, stride: Pair, before: Pair = (0, 0)
) -> None:
    """Give the transpose of `_in_phases`, into `maps`."""
    split = values.view(*points, *stride, maps.shape[1], maps.shape[0]).permute(0, 2, 1, 3, 4, 5)
    whole = split.flatten(2, 3).flatten(0, 1)  # [h, w, c, a]
    pads = [-pad for pad in _around(maps, points, stride, before)]
    maps.copy_(_samples_first(F.pad(whole, pads)))


def _around(maps: Tensor, points: Pair, stride: Pair, before: Pair) -> list[int]:
    """Give what is missing on every side of [h, w, c, a], as torch pads it."""
    (top, bottom), (left, right) = (
        (pad, count * step - side - pad)
        for side, count, step, pad in zip(maps.shape[2:], points, stride, before, strict=True)
    )
    return [0, 0, 0, 0, left, right, top, bottom]


# A matrix is transposed by blocks, what has more axes is copied number by number. So both ways go
# through a matrix of as many rows as there are samples.


def _samples_last(maps: Tensor) -> Tensor:
    """Give [a, c, h, w] as [h, w, c, a]."""
    a, c, h, w = maps.shape
    return maps.reshape(a, c * h * w).t().contiguous().view(c, h, w, a).permute(1, 2, 0, 3)


def _samples_first(points: Tensor) -> Tensor:
    """Give [h, w, c, a] as [a, c, h, w]."""
    h, w, c, a = points.shape
    return points.permute(2, 0, 1, 3).reshape(c * h * w, a).t().contiguous().view(a, c, h, w)


def _count_products(points: Pair) -> int:
    """Count products of real numbers: three for each pair of conjugate frequencies, one for the
    others."""
    own = math.prod(1 + (n % 2 == 0) for n in points)
    return own + 3 * (math.prod(points) - own) // 2


@lru_cache(maxsize=8)
def _matrices(points: Pair, taps: Pair, outputs: Pair) -> tuple[Numbers, Numbers, Numbers]:
    """Give A [k, points], B [k, taps], C [outputs, k]."""
    rows_a, rows_b, rows_c = [], [], []
    for u, v in np.ndindex(points):
        conjugate = ((-u) % points[0], (-v) % points[1])
        if (u, v) > conjugate:
            continue
        turn = 2 * np.pi * np.array([u / points[0], v / points[1]])
        x, w, y = (turn @ np.indices(each).reshape(2, -1) for each in (points, taps, outputs))
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


class _Products(torch.autograd.Function):
    """[b, c, h, w], [o, c, h, w] → [outputs, b, o]. Some channels at a time, whose transforms are
    made again for the gradient. Sums over channels are in the precision of the matrices."""

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor,
        a: Tensor,
        b: Tensor,
        c: Tensor,
        plan: _Plan,
        stride: Pair,
        padding: Pair,
    ) -> Tensor:
        y = a.new_zeros(len(a), len(x), len(weight))
        for some in _parts(x, weight, len(a) * math.prod(stride)):
            maps = _transformed(a, _in_phases(x[:, some], plan.points, stride, padding))
            kernels = _transformed(b, _in_phases(weight[:, some], plan.taps, stride))
            _add(y, maps.transpose(1, 2), kernels)
        return _transformed(c, y)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:5])
        ctx.how = inputs[5:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        with without_autocast(gradient):
            of_both = _gradients(ctx.needs_input_grad[:2], gradient, *ctx.saved_tensors, *ctx.how)
        return *of_both, *(None,) * 6


def _gradients(
    needs: tuple[bool, bool],
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    plan: _Plan,
    stride: Pair,
    padding: Pair,
) -> tuple[Tensor | None, Tensor | None]:
    of_products = _transformed(c.t(), gradient.to(x.dtype))  # [k, b, o]
    of_x, of_weight = (
        torch.empty_like(each) if needed else None
        for each, needed in zip((x, weight), needs, strict=True)
    )
    for some in _parts(x, weight, len(a) * math.prod(stride)):
        if of_x is not None:
            kernels = _transformed(b, _in_phases(weight[:, some], plan.taps, stride))
            of_maps = torch.bmm(kernels, of_products.transpose(1, 2))
            of_maps = _transformed(a.t(), of_maps)
            _from_phases(of_maps, of_x[:, some], plan.points, stride, padding)
        if of_weight is not None:
            maps = _transformed(a, _in_phases(x[:, some], plan.points, stride, padding))
            of_kernels = _transformed(b.t(), torch.bmm(maps, of_products))
            _from_phases(of_kernels, of_weight[:, some], plan.taps, stride)
    return of_x, of_weight


def _parts(x: Tensor, weight: Tensor, products: int) -> list[slice]:
    """Part channels into those whose transforms fit; a channel has so many products."""
    channels, largest = x.shape[1], products * max(len(x), len(weight)) * x.itemsize
    most = max(1, PART_BYTES // max(largest, 1))
    # As many in each, but for what makes whole vectors.
    count = -(-channels // max(1, -(-channels // most)))
    count = max(1, min(most, -(-count // 4) * 4))
    return [slice(start, start + count) for start in range(0, channels, count)]


def _transformed(matrix: Tensor, values: Tensor) -> Tensor:
    """Multiply the matrix by the first axis."""
    made: Tensor = torch.mm(matrix.to(values.dtype), values.flatten(1))
    return made.view(len(matrix), *values.shape[1:])


def _add(sums: Tensor, maps: Tensor, kernels: Tensor) -> None:
    """Add a product for each of the first axis."""
    if maps.dtype == sums.dtype:
        sums.baddbmm_(maps, kernels)
    else:
        sums += torch.bmm(maps, kernels)
