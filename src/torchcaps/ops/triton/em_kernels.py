"""The Triton kernels of EM routing; votes are made as in `vote_kernels`.

With e_ij = V_ij − μ_j, `moments` sums w_ij e_ij and w_ij e_ij² over children, in partial sums, one
a split of them; `slopes` knows of Q = Σ_ij w_ij ⟨e_ij, α_j + ν_j e_ij⟩

    ∂w_ij = ⟨e_ij, α_j + ν_j e_ij⟩,   ∂V_ij = w_ij (α_j + 2 ν_j e_ij)

which is the way back from the moments, and with α = 0 and ν = 1 / σ² the distances and theirs.
"""

import triton
import triton.language as tl

from torchcaps.ops.triton.vote_kernels import (
    _columns,
    _give_coordinates,
    _give_poses,
    _give_weights,
    _operand,
    _per_pair,
    _poses,
    _rows,
    _spread,
    _votes,
    _weights,
    _wide,
)


@triton.jit
def moments(
    pose,
    weight,
    vote_bias,
    coordinates,
    child_id,
    share,
    mean,
    variance,
    first,
    second,
    batch,
    children,
    parents,
    types,
    windows,
    grid,
    per_split,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    BB: tl.constexpr,
    RP: tl.constexpr,
    BJ: tl.constexpr,
    CP: tl.constexpr,
    KP: tl.constexpr,
    BY_COLUMN: tl.constexpr,
    BY_INNER: tl.constexpr,
    ROUND: tl.constexpr,
    DOT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """first and second [split, b, j, d] = Σ_i w_ij e_ij and Σ_i w_ij e_ij²; without a mean e is the
    vote, with a variance e is a part of it."""
    SIZE: tl.constexpr = ROWS * COLUMNS
    lanes = tl.cdiv(batch, BB)
    tiles = tl.cdiv(parents, BJ)
    program = tl.program_id(0)
    first_b = program % lanes * BB
    first_j = program // lanes % tiles * BJ
    split = program // lanes // tiles
    b, r, in_rows = _rows(first_b, batch, ROWS, BB, RP)
    j, c, in_columns = _columns(first_j, parents, COLUMNS, BJ, CP)
    place = (b * parents * SIZE + r * COLUMNS)[:, None] + (j * SIZE + c)[None, :]
    inside = in_rows[:, None] & in_columns[None, :]
    pair_b = _wide(first_b + tl.arange(0, BB))
    pair_j = first_j + tl.arange(0, BJ)
    is_pair = (pair_b < batch)[:, None] & (pair_j < parents)[None, :]
    if mean is not None:
        middle = tl.load(mean + place, mask=inside, other=0.0)
    if variance is not None:
        spread = tl.load(variance + place, mask=inside, other=1.0)
    to_first = tl.zeros((BB * RP, BJ * CP), tl.float32)
    to_second = tl.zeros((BB * RP, BJ * CP), tl.float32)
    for i in range(split * per_split, tl.minimum((split + 1) * per_split, children)):
        weights = _weights(
            weight, i % types, j, c, in_columns, parents, COLUMNS, INNER, KP, BY_COLUMN, BY_INNER,
            ROUND, DOT,
        )  # fmt: skip
        seen = _poses(
            pose, child_id, i, b, r, in_rows, children, windows, grid, ROWS, INNER, KP, ROUND,
            DOT,
        )  # fmt: skip
        e = _votes(
            seen, weights, vote_bias, coordinates, i, r, j, c, in_columns, ROWS, COLUMNS, PRECISION
        )
        if mean is not None:
            e -= middle
        if variance is not None:
            e /= spread
        pair = ((pair_b * children + i) * parents)[:, None] + pair_j[None, :]
        w = tl.load(share + pair, mask=is_pair, other=0.0)
        part = _spread(w, BB, RP, BJ, CP) * e
        to_first += part
        if second is not None:
            to_second += part * e
    at = _wide(split) * batch * parents * SIZE
    tl.store(first + at + place, to_first, mask=inside)
    if second is not None:
        tl.store(second + at + place, to_second, mask=inside)


@triton.jit
def slopes(
    pose,
    weight,
    vote_bias,
    coordinates,
    child_id,
    share,
    mean,
    alpha,
    nu,
    of_share,
    of_pose,
    of_weight,
    of_coordinates,
    batch,
    children,
    parents,
    types,
    windows,
    grid,
    per_split,
    per_part,
    first_j,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    BB: tl.constexpr,
    RP: tl.constexpr,
    BJ: tl.constexpr,
    CP: tl.constexpr,
    KP: tl.constexpr,
    BY_COLUMN: tl.constexpr,
    BY_INNER: tl.constexpr,
    ROUND: tl.constexpr,
    DOT: tl.constexpr,
    PRECISION: tl.constexpr,
    ADDS: tl.constexpr,
):
    """∂w [b, i, j], and what follows from ∂V, through one tile of parents.

    A program has some children that share weights, and every sample of them, or where nothing is
    summed over samples some. Tiles follow each other: what has no parent's axis is added to by
    every one but the first (ADDS).
    """
    SIZE: tl.constexpr = ROWS * COLUMNS
    TO_VOTES: tl.constexpr = (
        (of_pose is not None) | (of_weight is not None) | (of_coordinates is not None)
    )
    positions = children // types
    splits = tl.cdiv(positions, per_split)
    kind = tl.program_id(0) % types
    split = tl.program_id(0) // types % splits
    part = tl.program_id(0) // types // splits
    j, c, in_columns = _columns(first_j, parents, COLUMNS, BJ, CP)
    columns = j * SIZE + c
    pair_j = first_j + tl.arange(0, BJ)
    weights = _weights(
        weight, kind, j, c, in_columns, parents, COLUMNS, INNER, KP, BY_COLUMN, BY_INNER, ROUND, DOT
    )
    if of_weight is not None:
        to_weight = tl.zeros((KP, BJ * CP), tl.float32)
    for p in range(split * per_split, tl.minimum((split + 1) * per_split, positions)):
        i = p * types + kind
        if of_coordinates is not None:
            to_place = tl.zeros((RP, CP), tl.float32)
        for first_b in range(part * per_part, tl.minimum((part + 1) * per_part, batch), BB):
            b, r, in_rows = _rows(first_b, batch, ROWS, BB, RP)
            place = (b * parents * SIZE + r * COLUMNS)[:, None] + columns[None, :]
            inside = in_rows[:, None] & in_columns[None, :]
            pair_b = _wide(first_b + tl.arange(0, BB))
            is_pair = (pair_b < batch)[:, None] & (pair_j < parents)[None, :]
            pair = ((pair_b * children + i) * parents)[:, None] + pair_j[None, :]
            seen = _poses(
                pose, child_id, i, b, r, in_rows, children, windows, grid, ROWS, INNER, KP, ROUND,
                DOT,
            )  # fmt: skip
            e = _votes(
                seen, weights, vote_bias, coordinates, i, r, j, c, in_columns, ROWS, COLUMNS,
                PRECISION,
            )  # fmt: skip
            e -= tl.load(mean + place, mask=inside, other=0.0)
            slope = e * tl.load(nu + place, mask=inside, other=0.0)
            if alpha is not None:
                both = slope + tl.load(alpha + place, mask=inside, other=0.0)
            else:
                both = slope
            if of_share is not None:
                tl.store(of_share + pair, _per_pair(e * both, BB, RP, BJ, CP), mask=is_pair)
            if TO_VOTES:
                w = tl.load(share + pair, mask=is_pair, other=0.0)
                of_votes = _spread(w, BB, RP, BJ, CP) * (both + slope)
                rounded = _operand(of_votes, ROUND, DOT)
                if of_pose is not None:
                    _give_poses(
                        of_pose, rounded, weights, i, b, r, in_rows, children, ROWS, INNER, KP,
                        PRECISION, ADDS,
                    )  # fmt: skip
                if of_weight is not None:
                    to_weight += tl.dot(tl.trans(seen), rounded, input_precision=PRECISION)
                if of_coordinates is not None:
                    to_place += tl.sum(tl.sum(tl.reshape(of_votes, (BB, RP, BJ, CP)), 2), 0)
        if of_coordinates is not None:
            _give_coordinates(of_coordinates, to_place, i, ROWS, COLUMNS, RP, CP, ADDS)
    if of_weight is not None:
        _give_weights(
            of_weight, to_weight, split * types + kind, j, c, in_columns, parents, COLUMNS, INNER,
            KP, BY_COLUMN, BY_INNER,
        )  # fmt: skip
