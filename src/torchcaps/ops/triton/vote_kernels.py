"""How Triton kernels make votes; they live in registers.

A tile is some samples b by some parents j; a sample that is seen through windows counts as one
sample for each of them, and its children i are the slots of the window. Votes of one child are a
product [m, k] × [k, n] of its poses and its weights, m over samples and rows of a matrix pose, n
over parents and columns. Sizes are padded to powers of two; what is padded reads as zero.
"""

import triton
import triton.language as tl


@triton.jit
def _wide(index):
    """Offsets pass 2³¹ where tensors are large."""
    return tl.cast(index, tl.int64)


@triton.jit
def _per_pair(x, BB: tl.constexpr, RP: tl.constexpr, BJ: tl.constexpr, CP: tl.constexpr):
    """[m, n] summed over the components of a pose, [b, j]."""
    return tl.sum(tl.sum(tl.reshape(x, (BB, RP, BJ, CP)), 3), 1)


@triton.jit
def _spread(x, BB: tl.constexpr, RP: tl.constexpr, BJ: tl.constexpr, CP: tl.constexpr):
    """[b, j] for every component of a pose, [m, n]."""
    whole = tl.broadcast_to(x[:, None, :, None], (BB, RP, BJ, CP))
    return tl.reshape(whole, (BB * RP, BJ * CP))


@triton.jit
def _operand(x, ROUND: tl.constexpr, DOT: tl.constexpr):
    return x.to(ROUND).to(DOT)


@triton.jit
def _rows(first, batch, ROWS: tl.constexpr, BB: tl.constexpr, RP: tl.constexpr):
    """Sample, row of the pose, and whether it is there, [m]."""
    m = tl.arange(0, BB * RP)
    b = first + m // RP
    r = m % RP
    return _wide(b), r, (b < batch) & (r < ROWS)


@triton.jit
def _columns(first, parents, COLUMNS: tl.constexpr, BJ: tl.constexpr, CP: tl.constexpr):
    """Parent, column of the pose, and whether it is there, [n]."""
    n = tl.arange(0, BJ * CP)
    j = first + n // CP
    c = n % CP
    return j, c, (j < parents) & (c < COLUMNS)


@triton.jit
def _weights(
    weight,
    kind,
    j,
    c,
    there,
    parents,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    KP: tl.constexpr,
    BY_COLUMN: tl.constexpr,
    BY_INNER: tl.constexpr,
    ROUND: tl.constexpr,
    DOT: tl.constexpr,
):
    """[k, n] of the children of one kind."""
    k = tl.arange(0, KP)
    at = _wide(kind) * parents * (COLUMNS * INNER)
    place = (j * (COLUMNS * INNER) + c * BY_COLUMN)[None, :] + (k * BY_INNER)[:, None]
    there = there[None, :] & (k < INNER)[:, None]
    return _operand(tl.load(weight + at + place, mask=there, other=0.0), ROUND, DOT)


@triton.jit
def _poses(
    pose,
    child_id,
    i,
    b,
    r,
    there,
    children,
    windows,
    grid,
    ROWS: tl.constexpr,
    INNER: tl.constexpr,
    KP: tl.constexpr,
    ROUND: tl.constexpr,
    DOT: tl.constexpr,
):
    """[m, k] of child i; through a window of the child, out of `grid`, in slot i."""
    k = tl.arange(0, KP)
    child = b * children + i
    if child_id is not None:
        slot = b % windows * children + i
        child = b // windows * grid + tl.load(child_id + slot, mask=there, other=0)
    at = child * (ROWS * INNER) + r * INNER
    there = there[:, None] & (k < INNER)[None, :]
    return _operand(tl.load(pose + at[:, None] + k[None, :], mask=there, other=0.0), ROUND, DOT)


@triton.jit
def _votes(
    seen,
    weights,
    vote_bias,
    coordinates,
    i,
    r,
    j,
    c,
    there,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """û of child i, [m, n]."""
    votes = tl.dot(seen, weights, input_precision=PRECISION)
    moved = (r < ROWS)[:, None] & there[None, :]
    place = (r * COLUMNS)[:, None] + c[None, :]
    if vote_bias is not None:
        of_parent = (j * (ROWS * COLUMNS))[None, :]
        votes += tl.load(vote_bias + of_parent + place, mask=moved, other=0.0)
    if coordinates is not None:
        at = _wide(i) * (ROWS * COLUMNS)
        votes += tl.load(coordinates + at + place, mask=moved, other=0.0)
    return votes


@triton.jit
def _give_poses(
    of_pose,
    of_votes,
    weights,
    i,
    b,
    r,
    there,
    children,
    ROWS: tl.constexpr,
    INNER: tl.constexpr,
    KP: tl.constexpr,
    PRECISION: tl.constexpr,
    ADDS: tl.constexpr,
):
    """Gradients of the poses of child i, through the parents of a tile."""
    k = tl.arange(0, KP)
    at = (b * children + i) * (ROWS * INNER) + r * INNER
    place = of_pose + at[:, None] + k[None, :]
    there = there[:, None] & (k < INNER)[None, :]
    # In this order: the other way round half of it would not fit into registers.
    gradient = tl.trans(tl.dot(weights, tl.trans(of_votes), input_precision=PRECISION))
    if ADDS:
        gradient += tl.load(place, mask=there, other=0.0)
    tl.store(place, gradient, mask=there)


@triton.jit
def _give_weights(
    of_weight,
    gradient,
    kind,
    j,
    c,
    there,
    parents,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    KP: tl.constexpr,
    BY_COLUMN: tl.constexpr,
    BY_INNER: tl.constexpr,
):
    """Gradients [k, n] of the weights of one kind, in one split."""
    k = tl.arange(0, KP)
    at = _wide(kind) * parents * (COLUMNS * INNER)
    place = (j * (COLUMNS * INNER) + c * BY_COLUMN)[None, :] + (k * BY_INNER)[:, None]
    tl.store(of_weight + at + place, gradient, mask=there[None, :] & (k < INNER)[:, None])


@triton.jit
def _give_coordinates(
    of_coordinates,
    gradient,
    i,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    RP: tl.constexpr,
    CP: tl.constexpr,
    ADDS: tl.constexpr,
):
    """Gradients [r, c] of the coordinates of child i, through the parents of a tile."""
    row = tl.arange(0, RP)[:, None]
    column = tl.arange(0, CP)[None, :]
    place = of_coordinates + _wide(i) * (ROWS * COLUMNS) + row * COLUMNS + column
    there = (row < ROWS) & (column < COLUMNS)
    if ADDS:
        gradient += tl.load(place, mask=there, other=0.0)
    tl.store(place, gradient, mask=there)
