"""The Triton kernels that make parents of sums, with the biases and squashing of dynamic routing;
the equations are those of `ops.fused.dynamic_routing`.
"""

import triton
import triton.language as tl

from torchcaps.ops.triton.vote_kernels import _wide


@triton.jit
def _biased(s, bias, row, d, parents, inside, SIZE: tl.constexpr, ODD: tl.constexpr):
    """s of some parents with the bias, or with the one of ±bias that lies on its side."""
    if bias is not None:
        at = (row % parents * SIZE)[:, None] + d[None, :]
        mine = tl.load(bias + at, mask=inside, other=0.0)
        if ODD:
            along = tl.sum(s * mine, 1)
            side = tl.where(along > 0, 1.0, tl.where(along < 0, -1.0, along))
            mine = side[:, None] * mine
        s += mine
    return s


@triton.jit
def _scale(square, norm, SQUASH: tl.constexpr):
    """f of g(s) = f(‖s‖²) s."""
    if SQUASH == "none":
        scale = tl.full(norm.shape, 1.0, tl.float32)
    elif SQUASH == "hinton":
        scale = square / (1 + square) / norm
    else:
        # (1 − exp(−x)) / x loses digits near zero, where its series is short.
        near = 1 - norm / 7
        near = 1 - norm / 6 * near
        near = 1 - norm / 5 * near
        near = 1 - norm / 4 * near
        near = 1 - norm / 3 * near
        near = 1 - norm / 2 * near
        scale = tl.where(norm < 0.25, near, (1 - tl.exp(-norm)) / norm)
    return scale


@triton.jit
def _squash(s, EPSILON: tl.constexpr, SQUASH: tl.constexpr):
    square = tl.sum(s * s, 1)
    scale = _scale(square, tl.sqrt_rn(square + EPSILON), SQUASH)
    return scale[:, None] * s


@triton.jit
def _gathered(partial, place, inside, count, splits, SIZE: tl.constexpr, TOGETHER: tl.constexpr):
    """Σ over the splits, in an order that is always the same."""
    total = tl.zeros(place.shape, tl.float32)
    for first in range(0, splits, TOGETHER):
        split = first + tl.arange(0, TOGETHER)
        at = (_wide(split) * count * SIZE)[:, None, None] + place[None, :, :]
        here = (split < splits)[:, None, None] & inside[None, :, :]
        total += tl.sum(tl.load(partial + at, mask=here, other=0.0), 0)
    return total


@triton.jit
def finish(
    partial,
    constant,
    bias,
    sums,
    poses,
    agreed,
    count,
    parents,
    splits,
    share,
    SIZE: tl.constexpr,
    DP: tl.constexpr,
    ROWS: tl.constexpr,
    TOGETHER: tl.constexpr,
    EPSILON: tl.constexpr,
    SQUASH: tl.constexpr,
    ODD: tl.constexpr,
    FIRST: tl.constexpr,
):
    """s from its partial sums, v = g(s + bias), and A of the next iteration; `count` parents of all
    samples. What every parent of a kind adds to a uniform s is `constant` [j, d]."""
    row = _wide(tl.program_id(0)) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, DP)
    inside = (row < count)[:, None] & (d < SIZE)[None, :]
    place = (row * SIZE)[:, None] + d[None, :]
    s = _gathered(partial, place, inside, count, splits, SIZE, TOGETHER)
    if constant is not None:
        at = (row % parents * SIZE)[:, None] + d[None, :]
        s += tl.load(constant + at, mask=inside, other=0.0)
    s *= share
    tl.store(sums + place, s, mask=inside)
    v = _squash(_biased(s, bias, row, d, parents, inside, SIZE, ODD), EPSILON, SQUASH)
    if poses is not None:
        tl.store(poses + place, v, mask=inside)
    if not FIRST:
        v += tl.load(agreed + place, mask=inside, other=0.0)
    tl.store(agreed + place, v, mask=inside)


@triton.jit
def agree(
    sums,
    bias,
    agreed,
    count,
    parents,
    iterations,
    SIZE: tl.constexpr,
    DP: tl.constexpr,
    ROWS: tl.constexpr,
    EPSILON: tl.constexpr,
    SQUASH: tl.constexpr,
    ODD: tl.constexpr,
):
    """A of every iteration from s of those before it, [t, b, j, d]."""
    row = _wide(tl.program_id(0)) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, DP)
    inside = (row < count)[:, None] & (d < SIZE)[None, :]
    place = (row * SIZE)[:, None] + d[None, :]
    total = tl.zeros((ROWS, DP), tl.float32)
    for t in range(iterations):
        at = _wide(t) * count * SIZE
        tl.store(agreed + at + place, total, mask=inside)
        s = tl.load(sums + at + place, mask=inside, other=0.0)
        total += _squash(_biased(s, bias, row, d, parents, inside, SIZE, ODD), EPSILON, SQUASH)


@triton.jit
def unsquash(
    of_poses,
    partial,
    later,
    sums,
    bias,
    of_sum,
    count,
    parents,
    splits,
    SIZE: tl.constexpr,
    DP: tl.constexpr,
    ROWS: tl.constexpr,
    TOGETHER: tl.constexpr,
    EPSILON: tl.constexpr,
    SQUASH: tl.constexpr,
    ODD: tl.constexpr,
):
    """γ, the gradient of s, from that of v: what was asked of it and what later iterations send
    back, to which the partial sums of the last one are added."""
    row = _wide(tl.program_id(0)) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, DP)
    inside = (row < count)[:, None] & (d < SIZE)[None, :]
    place = (row * SIZE)[:, None] + d[None, :]
    gradient = tl.load(later + place, mask=inside, other=0.0)
    if partial is not None:
        gradient += _gathered(partial, place, inside, count, splits, SIZE, TOGETHER)
        tl.store(later + place, gradient, mask=inside)
    if of_poses is not None:
        gradient += tl.load(of_poses + place, mask=inside, other=0.0)
    s = tl.load(sums + place, mask=inside, other=0.0)
    s = _biased(s, bias, row, d, parents, inside, SIZE, ODD)
    if SQUASH != "none":
        square = tl.sum(s * s, 1)
        norm = tl.sqrt_rn(square + EPSILON)
        scale = _scale(square, norm, SQUASH)
        if SQUASH == "hinton":
            rest = 1 + square
            slope = (1 / (rest * rest) - scale / (2 * norm)) / norm
        else:
            slope = (tl.exp(-norm) - scale) / (2 * norm * norm)
        along = 2 * slope * tl.sum(s * gradient, 1)
        gradient = scale[:, None] * gradient + along[:, None] * s
    tl.store(of_sum + place, gradient, mask=inside)
