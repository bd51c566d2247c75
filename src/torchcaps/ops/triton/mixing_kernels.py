"""The Triton kernels that weigh votes by couplings, a softmax over parents of how far they agree:
forwards c_ij = softmax_j(⟨û_ij, A_j⟩ + prior_ij), and back.

Votes are made as in `vote_kernels`, and forgotten when the loop comes to the next child. What is
padded reads as −∞ where it is a logit.

Where a tile holds all parents it knows the softmax. Else `normalise` has gone over the tiles
before and left for every child and sample

    M = max_j b_ij,   Z = Σ_j exp(b_ij − M),   H = Σ_j c_ij h_ij

of which a tile needs no other tile: c_ij = exp(b_ij − M) / Z and ∂b_ij = c_ij (h_ij − H).

Whatever is summed over children leaves as partial sums, one a split of the children: nobody adds to
what another wrote, so results repeat bit for bit.
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
def _of_child(parameter, i, j, parents):
    """The row [1, j] of a parameter [i, j]."""
    return tl.load(parameter + _wide(i) * parents + j, mask=j < parents, other=0.0)[None, :]


@triton.jit
def _logits(
    votes,
    agreed,
    prior,
    i,
    j,
    parents,
    has_agreed,
    BB: tl.constexpr,
    RP: tl.constexpr,
    BJ: tl.constexpr,
    CP: tl.constexpr,
):
    """b of child i, [b, j]. In the first iteration A is zero, and so is its product with a vote
    that is infinite."""
    logits = tl.where(has_agreed, _per_pair(votes * agreed, BB, RP, BJ, CP), 0.0)
    if prior is not None:
        logits += _of_child(prior, i, j, parents)
    return tl.where((j < parents)[None, :], logits, -float("inf"))


@triton.jit
def _softmax(logits, most, total, place, there, WHOLE: tl.constexpr, LEAKY: tl.constexpr):
    """c of a tile, [b, j]."""
    if WHOLE:
        largest = tl.max(logits, 1)
        if LEAKY:
            largest = tl.maximum(largest, 0.0)
        part = tl.exp(logits - largest[:, None])
        whole = tl.sum(part, 1)
        if LEAKY:
            whole += tl.exp(-largest)
    else:
        largest = tl.load(most + place, mask=there, other=float("inf"))
        whole = tl.load(total + place, mask=there, other=1.0)
        part = tl.exp(logits - largest[:, None])
    return part / whole[:, None]


@triton.jit
def _of_couplings(
    votes,
    of_sum,
    of_coupling,
    place,
    there,
    BB: tl.constexpr,
    RP: tl.constexpr,
    BJ: tl.constexpr,
    CP: tl.constexpr,
):
    """h of a tile, [b, j]."""
    h = _per_pair(votes * of_sum, BB, RP, BJ, CP)
    if of_coupling is not None:
        h += tl.load(of_coupling + place, mask=there, other=0.0)
    return h


@triton.jit
def _of_logits(c, h, mean, place, there, WHOLE: tl.constexpr):
    """∂b of a tile, [b, j]."""
    middle = tl.sum(c * h, 1) if WHOLE else tl.load(mean + place, mask=there, other=0.0)
    return c * (h - middle[:, None])


@triton.jit
def mix(
    pose,
    weight,
    vote_bias,
    coordinates,
    child_id,
    prior,
    added,
    agreed,
    of_sum,
    of_coupling,
    most,
    total,
    mean,
    partial,
    coupling,
    batch,
    children,
    parents,
    types,
    windows,
    grid,
    per_split,
    t,
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
    LEAKY: tl.constexpr,
    WHOLE: tl.constexpr,
    UNIFORM: tl.constexpr,
):
    """partial [split, b, j, d] = Σ_i (c_ij + added_ij) û_ij; with γ, Σ_i ∂b_ij û_ij; UNIFORM:
    Σ_i û_ij."""
    SIZE: tl.constexpr = ROWS * COLUMNS
    lanes = tl.cdiv(batch, BB)
    tiles = tl.cdiv(parents, BJ)
    program = tl.program_id(0)
    first_b = program % lanes * BB
    first_j = program // lanes % tiles * BJ
    split = program // lanes // tiles
    b, r, in_rows = _rows(first_b, batch, ROWS, BB, RP)
    j, c, in_columns = _columns(first_j, parents, COLUMNS, BJ, CP)
    columns = j * SIZE + c
    place = (b * parents * SIZE + r * COLUMNS)[:, None] + columns[None, :]
    inside = in_rows[:, None] & in_columns[None, :]
    pair_b = _wide(first_b + tl.arange(0, BB))
    pair_j = first_j + tl.arange(0, BJ)
    is_sample = pair_b < batch
    is_pair = is_sample[:, None] & (pair_j < parents)[None, :]
    sums = tl.zeros((BB * RP, BJ * CP), tl.float32)
    if not UNIFORM:
        agreement = tl.load(agreed + place, mask=inside, other=0.0)
        if of_sum is not None:
            gamma = tl.load(of_sum + place, mask=inside, other=0.0)
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
        if UNIFORM:
            sums += votes
        else:
            per_child = pair_b * children + i
            per_pair = (per_child * parents)[:, None] + pair_j[None, :]
            logits = _logits(votes, agreement, prior, i, pair_j, parents, t > 0, BB, RP, BJ, CP)
            share = _softmax(logits, most, total, per_child, is_sample, WHOLE, LEAKY)
            if added is not None:
                share += _of_child(added, i, pair_j, parents)
            if coupling is not None:
                tl.store(coupling + per_pair, share, mask=is_pair)
            if of_sum is not None:
                h = _of_couplings(votes, gamma, of_coupling, per_pair, is_pair, BB, RP, BJ, CP)
                share = _of_logits(share, h, mean, per_child, is_sample, WHOLE)
            sums += _spread(share, BB, RP, BJ, CP) * votes
    at = _wide(split) * batch * parents * SIZE
    tl.store(partial + at + place, sums, mask=inside)


@triton.jit
def normalise(
    pose,
    weight,
    vote_bias,
    coordinates,
    child_id,
    prior,
    agreed,
    of_sum,
    of_coupling,
    most,
    total,
    mean,
    batch,
    children,
    parents,
    types,
    windows,
    grid,
    per_split,
    t,
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
    LEAKY: tl.constexpr,
):
    """M and Z of every sample and child, and with γ also H, [b, i]."""
    SIZE: tl.constexpr = ROWS * COLUMNS
    lanes = tl.cdiv(batch, BB)
    program = tl.program_id(0)
    first_b = program % lanes * BB
    split = program // lanes
    b, r, in_rows = _rows(first_b, batch, ROWS, BB, RP)
    pair_b = _wide(first_b + tl.arange(0, BB))
    is_sample = pair_b < batch
    for i in range(split * per_split, tl.minimum((split + 1) * per_split, children)):
        seen = _poses(
            pose, child_id, i, b, r, in_rows, children, windows, grid, ROWS, INNER, KP, ROUND,
            DOT,
        )  # fmt: skip
        per_child = pair_b * children + i
        largest = tl.full((BB,), 0.0 if LEAKY else -float("inf"), tl.float32)
        whole = tl.full((BB,), 1.0 if LEAKY else 0.0, tl.float32)
        middle = tl.zeros((BB,), tl.float32)
        for first_j in range(0, parents, BJ):
            j, c, in_columns = _columns(first_j, parents, COLUMNS, BJ, CP)
            columns = j * SIZE + c
            place = (b * parents * SIZE + r * COLUMNS)[:, None] + columns[None, :]
            inside = in_rows[:, None] & in_columns[None, :]
            pair_j = first_j + tl.arange(0, BJ)
            weights = _weights(
                weight, i % types, j, c, in_columns, parents, COLUMNS, INNER, KP, BY_COLUMN,
                BY_INNER, ROUND, DOT,
            )  # fmt: skip
            votes = _votes(
                seen, weights, vote_bias, coordinates, i, r, j, c, in_columns, ROWS, COLUMNS,
                PRECISION,
            )  # fmt: skip
            agreement = tl.load(agreed + place, mask=inside, other=0.0)
            logits = _logits(votes, agreement, prior, i, pair_j, parents, t > 0, BB, RP, BJ, CP)
            larger = tl.maximum(largest, tl.max(logits, 1))
            # −∞ minus itself is not a number.
            level = tl.where(larger == -float("inf"), 0.0, larger)
            before = tl.exp(largest - level)
            part = tl.exp(logits - level[:, None])
            whole = whole * before + tl.sum(part, 1)
            if of_sum is not None:
                gamma = tl.load(of_sum + place, mask=inside, other=0.0)
                per_pair = (per_child * parents)[:, None] + pair_j[None, :]
                is_pair = is_sample[:, None] & (pair_j < parents)[None, :]
                h = _of_couplings(votes, gamma, of_coupling, per_pair, is_pair, BB, RP, BJ, CP)
                middle = middle * before + tl.sum(part * h, 1)
            largest = larger
        tl.store(most + per_child, largest, mask=is_sample)
        tl.store(total + per_child, whole, mask=is_sample)
        if of_sum is not None:
            tl.store(mean + per_child, middle / whole, mask=is_sample)


@triton.jit
def differentiate(
    pose,
    weight,
    vote_bias,
    coordinates,
    child_id,
    prior,
    added,
    agreed,
    of_sum,
    of_coupling,
    most,
    total,
    mean,
    of_pose,
    of_weight,
    of_vote_bias,
    of_coordinates,
    of_prior,
    of_added,
    batch,
    children,
    parents,
    types,
    windows,
    grid,
    per_split,
    first_j,
    first_t,
    end_t,
    first_mixed,
    first_recorded,
    first_agreed,
    first_added,
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
    LEAKY: tl.constexpr,
    WHOLE: tl.constexpr,
    UNIFORM: tl.constexpr,
    ASKS: tl.constexpr,
    TO_LOGITS: tl.constexpr,
    AGREES: tl.constexpr,
    ADDS: tl.constexpr,
):
    """Gradients of all iterations through one tile of parents,

        ∂û_ij = Σ_t (c_ij + added_ij) γ_j + ∂b_ij A_j

    A program has some children that share weights, and every sample of them. A and γ are
    [t, b, j, d], M, Z and H [t, b, i]. Tiles follow each other: what has no parent's axis is added
    to by every one but the first (ADDS).
    """
    SIZE: tl.constexpr = ROWS * COLUMNS
    TO_VOTES: tl.constexpr = (
        (of_pose is not None)
        | (of_weight is not None)
        | (of_vote_bias is not None)
        | (of_coordinates is not None)
    )
    kind = tl.program_id(0) % types
    split = tl.program_id(0) // types
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
    positions = children // types
    for p in range(split * per_split, tl.minimum((split + 1) * per_split, positions)):
        i = p * types + kind
        if of_coordinates is not None:
            to_place = tl.zeros((RP, CP), tl.float32)
        if of_prior is not None:
            to_prior = tl.zeros((BJ,), tl.float32)
        if of_added is not None:
            to_added = tl.zeros((BJ,), tl.float32)
        for first_b in range(0, batch, BB):
            b, r, in_rows = _rows(first_b, batch, ROWS, BB, RP)
            place = (b * parents * SIZE + r * COLUMNS)[:, None] + columns[None, :]
            inside = in_rows[:, None] & in_columns[None, :]
            pair_b = _wide(first_b + tl.arange(0, BB))
            is_sample = pair_b < batch
            is_pair = is_sample[:, None] & (pair_j < parents)[None, :]
            seen = _poses(
                pose, child_id, i, b, r, in_rows, children, windows, grid, ROWS, INNER, KP, ROUND,
                DOT,
            )  # fmt: skip
            of_votes = tl.zeros((BB * RP, BJ * CP), tl.float32)
            if ASKS:
                votes = _votes(
                    seen, weights, vote_bias, coordinates, i, r, j, c, in_columns, ROWS,
                    COLUMNS, PRECISION,
                )  # fmt: skip
                for t in range(first_t, end_t):
                    at = _wide(t) * batch * parents * SIZE
                    agreement = tl.load(agreed + at + place, mask=inside, other=0.0)
                    gamma = tl.load(of_sum + at + place, mask=inside, other=0.0)
                    per_child = (_wide(t) * batch + pair_b) * children + i
                    logits = _logits(
                        votes, agreement, prior, i, pair_j, parents, t >= first_agreed, BB, RP, BJ,
                        CP,
                    )  # fmt: skip
                    share = _softmax(logits, most, total, per_child, is_sample, WHOLE, LEAKY)
                    if TO_LOGITS:
                        recorded = (_wide(t) - first_recorded) * batch + pair_b
                        recorded = ((recorded * children + i) * parents)[:, None] + pair_j[None, :]
                        is_recorded = is_pair & (t >= first_recorded)
                        h = _of_couplings(
                            votes, gamma, of_coupling, recorded, is_recorded, BB, RP, BJ, CP
                        )
                        if of_added is not None:
                            to_added += tl.sum(tl.where(t >= first_added, h, 0.0), 0)
                        of_b = _of_logits(share, h, mean, per_child, is_sample, WHOLE)
                        if of_prior is not None:
                            to_prior += tl.sum(of_b, 0)
                        if AGREES:
                            of_votes += _spread(of_b, BB, RP, BJ, CP) * agreement
                    if TO_VOTES:
                        if added is not None:
                            more = _of_child(added, i, pair_j, parents)
                            share += tl.where(t >= first_added, more, 0.0)
                        mixed = _spread(share, BB, RP, BJ, CP) * gamma
                        of_votes += tl.where(t >= first_mixed, mixed, 0.0)
            if UNIFORM:
                of_votes += tl.load(of_sum + place, mask=inside, other=0.0)
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
        if of_prior is not None:
            tl.store(of_prior + _wide(i) * parents + pair_j, to_prior, mask=pair_j < parents)
        if of_added is not None:
            tl.store(of_added + _wide(i) * parents + pair_j, to_added, mask=pair_j < parents)
    if of_weight is not None:
        _give_weights(
            of_weight, to_weight, split * types + kind, j, c, in_columns, parents, COLUMNS, INNER,
            KP, BY_COLUMN, BY_INNER,
        )  # fmt: skip
    if of_vote_bias is not None:
        row = tl.arange(0, RP)
        at = _wide(tl.program_id(0)) * parents * SIZE
        spot = (row * COLUMNS)[:, None] + columns[None, :]
        known = (row < ROWS)[:, None] & in_columns[None, :]
        tl.store(of_vote_bias + at + spot, to_bias, mask=known)
