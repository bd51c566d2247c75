"""Distance routing backwards, a tile of votes at a time; the equations are those of
`ops.fused.distance`."""

import torch
from torch import Tensor

from torchcaps.ops.checks import without_autocast
from torchcaps.ops.fused.distance_tiles import (
    Given,
    along_itself,
    between,
    from_mean,
    from_nearest,
    lengths_of,
    rate_of,
)
from torchcaps.ops.fused.em import of_tile
from torchcaps.ops.fused.results import recorded
from torchcaps.ops.fused.rules import squash_gradient
from torchcaps.ops.fused.tiles import Lanes, Tile, TiledVotes, VoteGradients, softmax_over_parents
from torchcaps.ops.operators import Asked, Gradients
from torchcaps.ops.routing.common import biased
from torchcaps.ops.squashing import EPSILON
from torchcaps.ops.squashing import squash as g


def gradients(asked: Asked[Given]) -> Gradients:
    """Return the gradients of pose, weight, vote bias, coordinates, length, bias and scale."""
    with without_autocast(asked.given.votes.pose):
        back = _Backward(asked)
        back.run(asked)
        of_made = back.found.of(asked.given.votes.vote_map)
    return [*of_made, back.of_length, back.of_bias, back.of_scale]


class _Backward:
    """Goes through all iterations, from the last to the first; parents are [p, b, j, d]."""

    def __init__(self, asked: Asked[Given]):
        given, needs = asked.given, asked.needs
        self.votes = TiledVotes(given.votes.vote_map, given.votes.dtype)
        self.found = VoteGradients(self.votes, *needs[:4])
        self.limit, self.how = given.limit, given.how
        self.bias, self.scale = given.bias, given.scale
        new = self.votes.children.new_zeros
        self.of_length, self.of_bias, self.of_scale = (
            new(x.shape) if x is not None and need else None
            for x, need in zip((given.length, given.bias, given.scale), needs[4:], strict=True)
        )

    def run(self, asked: Asked[Given]) -> None:
        (sums, slopes, means), (*_, of_means, of_poses, of_couplings) = asked.saved, asked.gradients
        count = len(sums)
        wants_votes = self.found.any or self.of_length is not None
        every = wants_votes and self.how.detach == "none"
        goes_back = self.how.detach != "iterations" and (
            every or self.of_bias is not None or self.of_scale is not None
        )
        later: Tensor | None = None
        for t in reversed(range(count)):
            is_last = t == count - 1
            if not (is_last or goes_back):
                break
            s = sums[t].transpose(0, 1)
            of_v = recorded(of_poses, t - count)
            of_v = torch.zeros_like(s) if of_v is None else of_v
            of_v = of_v if later is None else of_v + later
            of_s = squash_gradient(biased(s, self.bias, False), of_v, self.how.squash)
            if self.of_bias is not None:
                self.of_bias += of_s.sum_to_size(self.of_bias.shape)
            mixes = wants_votes if is_last else every
            if t == 0:
                if mixes:
                    for lanes in self.votes.lanes():
                        self._first(lanes, of_s)
            else:
                of_c = recorded(of_couplings, t - count)
                before = sums[t - 1].transpose(0, 1)
                v = g(biased(before, self.bias, False), self.how.squash)
                mean = means[t - 1]
                f = rate_of(mean, self.how.log_odds)
                rate = f.expand(s.shape[1], s.shape[0]).t()
                share = torch.zeros_like(rate)
                if goes_back and len(slopes):
                    of_f = (of_s * slopes[t - 1].transpose(0, 1)).sum((-2, -1))
                    if of_c is not None:
                        of_f += self._of_rate(v, rate, of_c)
                    of_mean = -of_f.t().sum_to_size(mean.shape) * f / mean
                    if of_means is not None:
                        of_mean = of_mean + of_means[t - 1]
                    if self.of_scale is not None:
                        self.of_scale[t - 1] = of_mean
                    elif self.scale is None:
                        distances = s.shape[:2].numel() // max(1, mean.numel())
                        distances *= self.votes.n_in * self.votes.n_out
                        share = (of_mean / distances).expand(rate.t().shape).t()
                later = torch.empty_like(v) if goes_back else None
                for lanes in self.votes.lanes():
                    self._iteration(lanes, v, rate, share, of_s, of_c, later, mixes, every)

    def _first(self, lanes: Lanes, of_sum: Tensor) -> None:
        """Go through the first iteration, whose couplings are equal."""
        votes = self.votes
        of_votes = (votes.to_lanes(of_sum[lanes]) / votes.n_out).unsqueeze(-2)
        for tile in votes.tiles(lanes):
            seen = votes.seen(tile)
            part = votes.votes(tile, seen)  # [t, j, d, p, b]
            found = lengths_of(part, of_tile(votes, self.limit, tile))
            self._add(tile, seen, part, of_votes.expand(part.shape), *found)

    def _iteration(
        self,
        lanes: Lanes,
        parents: Tensor,
        rate: Tensor,
        of_mean: Tensor,
        of_sum: Tensor,
        of_c: Tensor | None,
        of_parents: Tensor | None,
        mixes: bool,
        measures: bool,
    ) -> None:
        """Write the gradient of the parents before into `of_parents`, where it is wanted; keep
        those of votes and lengths, as far as votes mix and as far as they are measured."""
        votes = self.votes
        v, of_s = votes.to_lanes(parents[lanes]), votes.to_lanes(of_sum[lanes])
        f, even = rate[lanes].flatten(), of_mean[lanes].flatten()
        of_v = votes.parents(lanes)
        for tile in votes.tiles(lanes):
            seen = votes.seen(tile)
            part = votes.votes(tile, seen)  # [t, j, d, p, b]
            gap, d, c, longer, norm, factor = self._compared(tile, part, v, f)
            if of_parents is not None:
                h = votes.along(part, of_s).mul_(factor)
                if of_c is not None:
                    h += votes.of_couplings(of_c, tile).flatten(-2)
                q = (c * from_mean(c, h)).mul_(f).add_(even).div_(d)
                gap.mul_(q.unsqueeze(2))
                of_v += gap.sum((0, 3))
            if mixes:
                if measures:
                    of_votes = gap.neg_().addcmul_(c.unsqueeze(2), of_s.unsqueeze(-2))
                else:
                    of_votes = torch.mul(c.unsqueeze(2), of_s.unsqueeze(-2), out=gap)
                self._add(tile, seen, part, of_votes, longer, norm, factor)
        if of_parents is not None:
            of_parents[lanes] = votes.from_lanes(of_v, lanes)

    def _add(
        self,
        tile: Tile,
        seen: Tensor,
        part: Tensor,
        of_votes: Tensor,
        longer: Tensor,
        norm: Tensor,
        factor: Tensor,
    ) -> None:
        """Add the gradient of shortened votes [t, j, d, p, b] to that of votes and of lengths."""
        # ⟨∂û_ij, w_ij⟩ / ‖w_ij‖
        inward = (of_votes * part).sum(2).div_(norm).mul_(longer)
        if self.of_length is not None:
            of_length = self.votes.of_couplings(self.of_length.transpose(0, 1).unsqueeze(-1), tile)
            of_length += self.votes.by_lane(inward.sum(1, keepdim=True), tile.lanes)
        if self.found.any:
            # The votes have served; their memory takes their gradient.
            part.mul_(inward.div_(norm).neg_().unsqueeze(2)).add_(of_votes)
            if part.shape[2] == 1:
                # Beside one number nothing lies across it, and rounding must not stay.
                part.masked_fill_(longer.unsqueeze(2), 0)
            self.found.add(tile, seen, part.mul_(factor.unsqueeze(2)))

    def _of_rate(self, parents: Tensor, rate: Tensor, of_c: Tensor) -> Tensor:
        """Return Σ_ij κ_ij c_ij (d_ij − Σ_k c_ik d_ik), [p, b]."""
        votes, total = self.votes, torch.empty_like(rate)
        for lanes in votes.lanes():
            v, f = votes.to_lanes(parents[lanes]), rate[lanes].flatten()
            found = torch.zeros_like(f)
            for tile in votes.tiles(lanes):
                part = votes.votes(tile, votes.seen(tile))
                _, d, c, *_ = self._compared(tile, part, v, f)
                kappa = votes.of_couplings(of_c, tile).flatten(-2)
                found += (kappa * c * from_mean(c, from_nearest(d))).sum((0, 1, 2))
            total[lanes] = found.view(total[lanes].shape)
        return total

    def _compared(self, tile: Tile, part: Tensor, v: Tensor, f: Tensor) -> tuple[Tensor, ...]:
        """Return n_ij, d_ij and c_ij of votes and parents, and what `lengths_of` finds of the
        votes."""
        lengths = lengths_of(part, of_tile(self.votes, self.limit, tile))
        gap = between(part, lengths[-1], v)
        d = along_itself(gap).add_(EPSILON).sqrt_()
        return gap, d, softmax_over_parents(d * f), *lengths
