"""The Triton kernels of distance routing; votes are made as in `vote_kernels`, then shortened,

    û_ij = φ_ij w_ij,   φ_ij = min(1, a_i / ‖w_ij‖)

`blend` sums x_ij û_ij or x_ij (û_ij − v_j) over children, in partial sums, one a split of them;
`compare` knows of Q = Σ_ij x_ij ⟨û_ij, y_j⟩ and of Q = Σ_ij d_ij, whose slope in d_ij is x_ij d_ij,

    ∂x_ij = ⟨û_ij, y_j⟩,                  ∂û_ij = x_ij y_j
    d_ij = sqrt(‖û_ij − y_j‖² + ε),       ∂û_ij = x_ij (û_ij − y_j)

and where a vote was shortened

    ∂w_ij = φ (∂û_ij − ⟨∂û_ij, w_ij⟩ w_ij / ‖w_ij‖²),   ∂a_i = Σ_j ⟨∂û_ij, w_ij⟩ / ‖w_ij‖
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
def _shortened(
    votes,
    limit,
    TINY: tl.constexpr,
    BB: tl.constexpr,
    RP: tl.constexpr,
    BJ: tl.constexpr,
    CP: tl.constexpr,
):
    """Which votes are longer than the children of each sample, their norms (1 for others), and φ,
    [b, j]. Below the smallest normal number 1/norm overflows, and a vote is short enough."""
    norm = tl.sqrt(_per_pair(votes * votes, BB, RP, BJ, CP))
    longer = norm > tl.maximum(limit, TINY)[:, None]
    norm = tl.where(longer, norm, 1.0)
    return longer, norm, tl.where(longer, limit[:, None] / norm, 1.0)


@triton.jit
def blend(
    pose,
    weight,
    vote_bias,
    coordinates,
    child_id,
    length,
    share,
    middle,
    partial,
    batch,
    children,
    parents,
    types,
    windows,
    grid,
    per_split,
    TINY: tl.constexpr,
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
    """partial [split, b, j, d] = Σ_i x_ij û_ij, with v Σ_i x_ij (û_ij − v_j); without x it is 1."""
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
    is_sample = pair_b < batch
    is_pair = is_sample[:, None] & (pair_j < parents)[None, :]
    if middle is not None:
        v = tl.load(middle + place, mask=inside, other=0.0)
    sums = tl.zeros((BB * RP, BJ * CP), tl.float32)
    for i in range(split * per_split, tl.minimum((split + 1) * per_split, children)):
        weights = _weights(
            weight, i % types, j, c, in_columns, parents, COLUMNS, INNER, KP, BY_COLUMN, BY_INNER,
            ROUND, DOT,
        )  # fmt: skip
        seen = _poses(
            pose, child_id, i, b, r, in_rows, children, windows, grid, ROWS, INNER, KP, ROUND,
            DOT,
        )  # fmt: skip
        votes = _votes(
            seen, weights, vote_bias, coordinates, i, r, j, c, in_columns, ROWS, COLUMNS,
            PRECISION,
        )  # fmt: skip
        per_child = pair_b * children + i
        limit = tl.load(length + per_child, mask=is_sample, other=0.0)
        _, _, factor = _shortened(votes, limit, TINY, BB, RP, BJ, CP)
        if share is not None:
            pair = (per_child * parents)[:, None] + pair_j[None, :]
            x = tl.load(share + pair, mask=is_pair, other=0.0)
        if middle is not None:
            gap = _spread(factor, BB, RP, BJ, CP) * votes - v
            sums += _spread(x, BB, RP, BJ, CP) * gap
        elif share is not None:
            sums += _spread(x * factor, BB, RP, BJ, CP) * votes
        else:
            sums += _spread(factor, BB, RP, BJ, CP) * votes
    at = _wide(split) * batch * parents * SIZE
    tl.store(partial + at + place, sums, mask=inside)


@triton.jit
def compare(
    pose,
    weight,
    vote_bias,
    coordinates,
    child_id,
    length,
    share,
    others,
    found,
    of_length,
    of_pose,
    of_weight,
    of_vote_bias,
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
    TINY: tl.constexpr,
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
    EPSILON: tl.constexpr,
    MEASURES: tl.constexpr,
    ADDS: tl.constexpr,
):
    """⟨û_ij, y_j⟩, or where it MEASURES d_ij, [b, i, j], and what follows from ∂û, through one tile
    of parents.

    A program has some children that share weights, and every sample of them, or where nothing is
    summed over samples some. Tiles follow each other: what has no parent's axis is added to by
    every one but the first (ADDS).
    """
    SIZE: tl.constexpr = ROWS * COLUMNS
    TO_VOTES: tl.constexpr = (
        (of_length is not None)
        | (of_pose is not None)
        | (of_weight is not None)
        | (of_vote_bias is not None)
        | (of_coordinates is not None)
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
    if of_vote_bias is not None:
        to_bias = tl.zeros((RP, BJ * CP), tl.float32)
    for p in range(split * per_split, tl.minimum((split + 1) * per_split, positions)):
        i = p * types + kind
        if of_coordinates is not None:
            to_place = tl.zeros((RP, CP), tl.float32)
        for first_b in range(part * per_part, tl.minimum((part + 1) * per_part, batch), BB):
            b, r, in_rows = _rows(first_b, batch, ROWS, BB, RP)
            place = (b * parents * SIZE + r * COLUMNS)[:, None] + columns[None, :]
            inside = in_rows[:, None] & in_columns[None, :]
            pair_b = _wide(first_b + tl.arange(0, BB))
            is_sample = pair_b < batch
            is_pair = is_sample[:, None] & (pair_j < parents)[None, :]
            per_child = pair_b * children + i
            pair = (per_child * parents)[:, None] + pair_j[None, :]
            seen = _poses(
                pose, child_id, i, b, r, in_rows, children, windows, grid, ROWS, INNER, KP, ROUND,
                DOT,
            )  # fmt: skip
            votes = _votes(
                seen, weights, vote_bias, coordinates, i, r, j, c, in_columns, ROWS, COLUMNS,
                PRECISION,
            )  # fmt: skip
            limit = tl.load(length + per_child, mask=is_sample, other=0.0)
            longer, norm, factor = _shortened(votes, limit, TINY, BB, RP, BJ, CP)
            y = tl.load(others + place, mask=inside, other=0.0)
            if MEASURES:
                y = _spread(factor, BB, RP, BJ, CP) * votes - y
            if found is not None:
                if MEASURES:
                    met = tl.sqrt(_per_pair(y * y, BB, RP, BJ, CP) + EPSILON)
                else:
                    met = factor * _per_pair(votes * y, BB, RP, BJ, CP)
                tl.store(found + pair, met, mask=is_pair)
            if TO_VOTES:
                if share is not None:
                    x = tl.load(share + pair, mask=is_pair, other=0.0)
                    y = _spread(x, BB, RP, BJ, CP) * y
                inward = tl.where(longer, _per_pair(y * votes, BB, RP, BJ, CP) / norm, 0.0)
                if of_length is not None:
                    to_length = tl.sum(inward, 1)
                    if ADDS:
                        to_length += tl.load(of_length + per_child, mask=is_sample, other=0.0)
                    tl.store(of_length + per_child, to_length, mask=is_sample)
                y -= _spread(inward / norm, BB, RP, BJ, CP) * votes
                of_votes = _spread(factor, BB, RP, BJ, CP) * y
                rounded = _operand(of_votes, ROUND, DOT)
                if of_pose is not None:
                    _give_poses(
                        of_pose, rounded, weights, i, b, r, in_rows, children, ROWS, INNER, KP,
                        PRECISION, ADDS,
                    )  # fmt: skip
                if of_weight is not None:
                    to_weight += tl.dot(tl.trans(seen), rounded, input_precision=PRECISION)
                if of_vote_bias is not None:
                    to_bias += tl.sum(tl.reshape(of_votes, (BB, RP, BJ * CP)), 0)
                if of_coordinates is not None:
                    to_place += tl.sum(tl.sum(tl.reshape(of_votes, (BB, RP, BJ, CP)), 2), 0)
        if of_coordinates is not None:
            _give_coordinates(of_coordinates, to_place, i, ROWS, COLUMNS, RP, CP, ADDS)
    if of_weight is not None:
        _give_weights(
            of_weight, to_weight, split * types + kind, j, c, in_columns, parents, COLUMNS, INNER,
            KP, BY_COLUMN, BY_INNER,
        )  # fmt: skip
    if of_vote_bias is not None:
        row = tl.arange(0, RP)
        at = _wide(split * types + kind) * parents * SIZE
        spot = (row * COLUMNS)[:, None] + columns[None, :]
        known = (row < ROWS)[:, None] & in_columns[None, :]
        tl.store(of_vote_bias + at + spot, to_bias, mask=known)
