"""Sums over the children of a vote map, a tile of votes at a time, and their gradients; the
equations are those of `ops.fused.loop`.

The sum of all votes is one product, or through windows one convolution.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.ops.checks import without_autocast
from torchcaps.ops.fused.tiles import (
    Lanes,
    MadeOf,
    Tile,
    TiledVotes,
    VoteGradients,
    softmax_over_parents,
)
from torchcaps.ops.fused.window_sums import WindowSums
from torchcaps.ops.operators import Asked, Gradients, Operator


class Given(NamedTuple):
    """Votes, and what weighs them. Queries are [b, p, j, d], parameters of couplings [b, p, i, j],
    where axes b and p of one stand for all samples and windows."""

    votes: MadeOf
    query: Tensor | None = None
    prior: Tensor | None = None
    added: Tensor | None = None
    share: float = 0.0
    leaky: bool = False
    detach: str = "none"  # "votes" and "coupling" hold the votes that make couplings constant
    record: bool = False

    @property
    def is_uniform(self) -> bool:
        """Whether all couplings are `share`."""
        return self.query is None and self.prior is None and self.added is None


class Mixed(NamedTuple):
    """Sums [b, p, j, d], and couplings [b, p, i, j] where they are recorded."""

    sums: Tensor
    couplings: Tensor


class Terms(NamedTuple):
    """Says which terms of a gradient somebody needs."""

    mixes: bool  # (c + added) γ goes to the votes
    agrees: bool  # ∂b q goes to the votes
    to_query: bool
    to_prior: bool
    to_added: bool

    @property
    def to_logits(self) -> bool:
        return self.agrees or self.to_query or self.to_prior


def terms(asked: Asked[Given]) -> Terms:
    given, (*of_votes, to_query, to_prior, to_added) = asked.given, asked.needs
    mixes = any(of_votes) and asked.gradients[0] is not None
    agrees = any(of_votes) and given.query is not None and given.detach in ("none", "states")
    return Terms(mixes, agrees, to_query, to_prior and given.detach != "coupling", to_added)


def _shapes(given: Given) -> Mixed:
    samples, windows, n_in, n_out, size = given.votes.counts()
    like = given.votes.pose.new_empty((), dtype=given.votes.dtype)
    couplings = (samples, windows, n_in, n_out) if given.record else (0,)
    return Mixed(like.new_empty(samples, windows, n_out, size), like.new_empty(couplings))


def _forward(given: Given) -> Mixed:
    found = _shapes(given)
    with without_autocast(found.sums):
        if given.is_uniform:
            _add_total(given.votes, found.sums)
            found.sums.mul_(given.share)
            found.couplings.fill_(given.share)
            return found
        votes = TiledVotes(given.votes.vote_map, given.votes.dtype)
        for lanes in votes.lanes():
            q, s = _to_lanes(votes, given.query, lanes), votes.parents(lanes)
            for tile in votes.tiles(lanes):
                part = votes.votes(tile, votes.seen(tile))
                _, c = _couplings(given, votes, tile, part, q)
                if given.record:
                    there = votes.of_couplings(found.couplings.transpose(0, 1), tile)
                    there.copy_(votes.by_lane(c, lanes))
                _add_mixed(votes, s, c, part)
            found.sums.transpose(0, 1)[lanes] = votes.from_lanes(s, lanes)
    return found


def _backward(asked: Asked[Given]) -> Gradients:
    given, needs, (of_sums, of_couplings) = asked.given, asked.needs, asked.gradients
    wanted = terms(asked)
    with without_autocast(given.votes.pose):
        if given.is_uniform:
            made = [None] * 4 if of_sums is None else _of_total(given, of_sums, needs[:4])
            return [*made, None, None, None]
        votes = TiledVotes(given.votes.vote_map, given.votes.dtype)
        found = VoteGradients(votes, *needs[:4])
        of_query, of_prior, of_added = (
            torch.zeros_like(x, memory_format=torch.contiguous_format)
            if x is not None and need
            else None
            for x, need in zip((given.query, given.prior, given.added), needs[4:], strict=True)
        )
        for lanes in votes.lanes():
            q, gamma = (_to_lanes(votes, x, lanes) for x in (given.query, of_sums))
            of_q = votes.parents(lanes)
            for tile in votes.tiles(lanes):
                seen = votes.seen(tile)
                part = votes.votes(tile, seen)  # [t, j, d, p, b]
                soft, c = _couplings(given, votes, tile, part, q)
                of_b = None
                if wanted.to_logits or wanted.to_added:
                    h = torch.zeros_like(c) if gamma is None else votes.along(part, gamma)
                    if of_couplings is not None:
                        h += votes.of_couplings(of_couplings.transpose(0, 1), tile).flatten(-2)
                    _add(votes, of_added, h, tile)
                    if soft is not None and wanted.to_logits:
                        of_b = soft * (h - (soft * h).sum(1, keepdim=True))
                        _add(votes, of_prior, of_b, tile)
                if of_query is not None and of_b is not None:
                    _add_mixed(votes, of_q, of_b, part)
                pairs = ((c, gamma if wanted.mixes else None), (of_b, q if wanted.agrees else None))
                every = [(x, y) for x, y in pairs if x is not None and y is not None]
                if every:
                    # The votes have served; their memory takes their gradient, Σ a_ij x_j.
                    (amount, x), *rest = every
                    torch.mul(amount.unsqueeze(2), x.unsqueeze(-2), out=part)
                    for amount, x in rest:
                        part.addcmul_(amount.unsqueeze(2), x.unsqueeze(-2))
                    found.add(tile, seen, part)
            if of_query is not None:
                of_query.transpose(0, 1)[lanes] = votes.from_lanes(of_q, lanes)
        return [*found.of(given.votes.vote_map), of_query, of_prior, of_added]


def _add_total(made: MadeOf, sums: Tensor) -> None:
    """Write Σ_i û_ij."""
    vote_map, window = made.vote_map, made.vote_map.window
    if window is not None:
        sums.copy_(WindowSums(vote_map, window, made.dtype).sums())
        return
    votes = TiledVotes(vote_map, made.dtype)
    for lanes in votes.lanes():
        sums.transpose(0, 1)[lanes] = votes.from_lanes(votes.total(lanes), lanes)


def _of_total(given: Given, of_sums: Tensor, needs: Sequence[bool]) -> Gradients:
    """Return the gradients of pose, weight, vote bias and coordinates where all are summed."""
    vote_map, of_total = given.votes.vote_map, of_sums * given.share
    if vote_map.window is not None:
        return WindowSums(vote_map, vote_map.window, given.votes.dtype).gradients(of_total, *needs)
    votes = TiledVotes(vote_map, given.votes.dtype)
    found = VoteGradients(votes, *needs)
    for lanes in votes.lanes():
        found.add_to_total(lanes, votes.to_lanes(of_total.transpose(0, 1)[lanes]))
    return found.of(vote_map)


def _couplings(
    given: Given, votes: TiledVotes, tile: Tile, part: Tensor, query: Tensor | None
) -> tuple[Tensor | None, Tensor]:
    """Return the softmax of the votes [t, j, d, p, b] of a tile, where there is one, and c with
    what is added, [t, j, p, b]."""
    soft, shape = None, votes.couplings_shape(tile)
    if query is None and given.prior is None:
        c = votes.children.new_full(shape, given.share)
    else:
        logits = votes.children.new_zeros(shape) if query is None else votes.along(part, query)
        logits = _plus(votes, logits, given.prior, tile)
        if given.leaky:
            nobody = logits.new_zeros(logits[:, :1].shape)
            c = soft = softmax_over_parents(torch.cat([logits, nobody], 1))[:, :-1]
        else:
            c = soft = softmax_over_parents(logits)
    return soft, _plus(votes, c, given.added, tile)


def _plus(votes: TiledVotes, values: Tensor, parameter: Tensor | None, tile: Tile) -> Tensor:
    if parameter is None:
        return values
    there = votes.of_couplings(parameter.transpose(0, 1), tile)
    return (votes.by_lane(values, tile.lanes) + there).flatten(-2)


def _add(votes: TiledVotes, gradient: Tensor | None, values: Tensor, tile: Tile) -> None:
    """Add the gradient of a parameter, where it is wanted."""
    if gradient is not None:
        there = votes.of_couplings(gradient.transpose(0, 1), tile)
        there += votes.by_lane(values, tile.lanes).sum_to_size(there.shape)


def _add_mixed(votes: TiledVotes, to: Tensor, amount: Tensor, part: Tensor) -> None:
    """Add Σ_i a_ij û_ij to [j, d, b]."""
    if part.shape[0] == part.shape[3] == 1:  # One child: in one pass, not three.
        to.addcmul_(amount[0], part[0, :, :, 0])
    else:
        to += votes.times(part, amount.unsqueeze(2)).sum((0, 3))


def _to_lanes(votes: TiledVotes, parents: Tensor | None, lanes: Lanes) -> Tensor | None:
    """Lay parents [b, p, j, d] of some lanes as [j, d, lane]."""
    return None if parents is None else votes.to_lanes(parents.transpose(0, 1)[lanes])


mix = Operator(
    "torchcaps::mixing",
    forward=_forward,
    shapes=_shapes,
    backward=_backward,
    what="fused routing",
    instead="route ops.materialise(vote_map) with the routing of torchcaps.ops",
)
