"""Distance routing forwards, a tile of votes at a time; the equations are those of
`ops.fused.distance`."""

from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.ops.checks import without_autocast
from torchcaps.ops.fused.em import of_tile, write_tile
from torchcaps.ops.fused.results import outputs
from torchcaps.ops.fused.tiles import Lanes, MadeOf, TiledVotes, softmax_over_parents
from torchcaps.ops.routing.common import biased
from torchcaps.ops.routing.distance import SHORTEST, DetachVotes, of_long_votes
from torchcaps.ops.squashing import EPSILON, Squash
from torchcaps.ops.squashing import squash as g
from torchcaps.types import Keep


class How(NamedTuple):
    """The options of distance routing."""

    iterations: int
    log_odds: float
    by_sample: bool  # d_o is the mean of one sample's distances
    with_slopes: bool
    squash: Squash
    detach: DetachVotes
    keep: Keep


class Given(NamedTuple):
    """Holds votes, and what is not of them."""

    votes: MadeOf
    length: Tensor  # [b, p, i], of children as a window sees them
    bias: Tensor | None  # [p or 1, b or 1, j, d]
    scale: Tensor | None  # [t], given distances
    how: How

    @property
    def limit(self) -> Tensor:
        """Lay lengths as couplings lie, [i, 1, p, b]."""
        return self.length.permute(2, 1, 0).unsqueeze(1)


class Measured(NamedTuple):
    """s of every iteration and S of those after the first [t, b, p, j, d], d_o [t, b, p] or [t], v
    and c of the iterations kept (of v always the last)."""

    sums: Tensor
    slopes: Tensor
    means: Tensor
    poses: Tensor
    couplings: Tensor


def forward(given: Given) -> Measured:
    found, how = shapes(given), given.how
    with without_autocast(given.votes.pose):
        votes = TiledVotes(given.votes.vote_map, given.votes.dtype)
        shape = (votes.n_in, votes.n_out, votes.n_windows, votes.n_batch)
        factors = found.sums.new_empty(shape)
        distances = found.sums.new_empty(shape if how.iterations > 1 else (0,))
        v = rate = None
        for t in range(how.iterations):
            if v is not None:
                total = _measure(votes, v, factors, distances)
                if given.scale is not None:
                    found.means[t - 1] = given.scale[t - 1]
                elif how.by_sample:
                    found.means[t - 1] = total.t() / (votes.n_in * votes.n_out)
                else:
                    found.means[t - 1] = total.sum() / distances.numel()
                rate = rate_of(found.means[t - 1], how.log_odds).expand(shape[3], shape[2]).t()
            record = t - how.iterations + len(found.couplings)
            kept = found.couplings[record].transpose(0, 1) if record >= 0 else None
            slope = found.slopes[t - 1].transpose(0, 1) if t and how.with_slopes else None
            s = found.sums[t].transpose(0, 1)  # [p, b, j, d]
            for lanes in votes.lanes():
                if rate is None:
                    mixed = _begin(votes, lanes, given.limit, factors, kept)
                else:
                    mixed = _mix(votes, lanes, rate, factors, distances, slope, kept)
                s[lanes] = votes.from_lanes(mixed, lanes)
            v = g(biased(s, given.bias, False), how.squash)
            record = t - how.iterations + len(found.poses)
            if record >= 0:
                found.poses[record] = v.transpose(0, 1)
    return found


def shapes(given: Given) -> Measured:
    counts, how = given.votes.counts(), given.how
    # Of one number: children in this precision need not be made.
    like, lanes = given.votes.pose.new_empty((), dtype=given.votes.dtype), counts[:2]
    sums, poses, couplings = outputs(like, lanes, counts[2:], how.iterations, how.keep)
    slopes = like.new_empty((how.iterations - 1 if how.with_slopes else 0, *sums.shape[1:]))
    means = like.new_empty((how.iterations - 1, *(lanes if how.by_sample else ())))
    return Measured(sums, slopes, means, poses, couplings)


def rate_of(mean: Tensor, log_odds: float) -> Tensor:
    return log_odds / (mean / 2 - mean)


def lengths_of(part: Tensor, limit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Say which votes [t, j, d, p, b] are longer than `limit`, their norms (1 for others), and
    φ."""
    norm = of_long_votes(along_itself(part).sqrt_(), part, 2)
    longer = norm > limit.clamp(min=SHORTEST)
    norm = torch.where(longer, norm, 1)
    return longer, norm, torch.where(longer, limit / norm, 1)


def along_itself(part: Tensor) -> Tensor:
    return (part * part).sum(2)


def between(part: Tensor, factor: Tensor, v: Tensor) -> Tensor:
    """Give n_ij = v_j − φ_ij w_ij, in new memory."""
    return torch.addcmul(v.unsqueeze(-2), part, factor.unsqueeze(2), value=-1)


def _begin(
    votes: TiledVotes, lanes: Lanes, length: Tensor, factors: Tensor, kept: Tensor | None
) -> Tensor:
    """Give Σ_i û_ij / J as [j, d, b]; φ is kept."""
    s = votes.parents(lanes)
    for tile in votes.tiles(lanes):
        part = votes.votes(tile, votes.seen(tile))  # [t, j, d, p, b]
        _, _, factor = lengths_of(part, of_tile(votes, length, tile))
        write_tile(votes, factors, tile, factor)
        s += part.mul_(factor.unsqueeze(2)).sum((0, 3))
    if kept is not None:
        kept[lanes].fill_(1 / votes.n_out)
    return s / votes.n_out


def _measure(votes: TiledVotes, v: Tensor, factors: Tensor, distances: Tensor) -> Tensor:
    """Write distances to parents [p, b, j, d] into `distances`, and return their sums [p, b]."""
    total = v.new_empty(v.shape[:2])
    for lanes in votes.lanes():
        parents, found = votes.to_lanes(v[lanes]), v.new_zeros(votes.count(lanes))
        for tile in votes.tiles(lanes):
            part = votes.votes(tile, votes.seen(tile))
            gap = part.mul_(of_tile(votes, factors, tile).unsqueeze(2)).sub_(parents.unsqueeze(-2))
            d = gap.square_().sum(2).add_(EPSILON).sqrt_()
            found += d.sum((0, 1, 2))
            write_tile(votes, distances, tile, d)
        total[lanes] = found.view(total[lanes].shape)
    return total


def _mix(
    votes: TiledVotes,
    lanes: Lanes,
    rate: Tensor,
    factors: Tensor,
    distances: Tensor,
    slope: Tensor | None,
    kept: Tensor | None,
) -> Tensor:
    """Give Σ_i c_ij û_ij as [j, d, b]; S and c are kept."""
    s, f = votes.parents(lanes), rate[lanes].flatten()
    more = torch.zeros_like(s)
    for tile in votes.tiles(lanes):
        part = votes.votes(tile, votes.seen(tile))  # [t, j, d, p, b]
        d = of_tile(votes, distances, tile)
        c = softmax_over_parents(d * f)
        if kept is not None:
            votes.of_couplings(kept, tile).copy_(votes.by_lane(c, lanes))
        share = c * of_tile(votes, factors, tile)
        if slope is not None:
            more += (part * (share * from_mean(c, from_nearest(d))).unsqueeze(2)).sum((0, 3))
        s += part.mul_(share.unsqueeze(2)).sum((0, 3))
    if slope is not None:
        slope[lanes] = votes.from_lanes(more, lanes)
    return s


def from_nearest(d: Tensor) -> Tensor:
    """Give d_ij − min_k d_ik, which has the same d_ij − Σ_k c_ik d_ik: that would be a difference
    of two long distances, and rounding, where one parent has nearly all of a child."""
    return d - d.amin(1, keepdim=True)


def from_mean(c: Tensor, x: Tensor) -> Tensor:
    """Give x_ij − Σ_k c_ik x_ik"""
    return x - (c * x).sum(1, keepdim=True)
