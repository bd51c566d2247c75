"""Sums over the children of a vote map, a tile of votes at a time, and their gradients; the
equations are those of `ops.fused.loop`.

The sum of all votes is one product, or through windows one convolution.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from torchcaps.ops.checks import without_autocast
from torchcaps.ops.fused.loop import Given, Mixed, Visit, visits
from torchcaps.ops.fused.tiles import (
    Lanes,
    Tile,
    TiledVotes,
    VoteGradients,
    softmax_over_parents,
)
from torchcaps.ops.fused.window_sums import WindowSums
from torchcaps.ops.operators import Asked, Gradients, Operator


class TiledMixing:
    """Sums over the children of one vote map. Parents are [b, p, j, d], couplings [b, p, i, j]."""

    def __init__(self, given: Given, needs: Sequence[bool]):
        self.vote_map, self.dtype = given.made_of.vote_map, given.made_of.dtype
        self.share, self.leaky = given.loop.share, given.loop.leaky
        self.needs = needs[:4]
        # [p, b, i, j], as lanes are cut
        self.prior, self.added = (
            None if x is None else x.transpose(0, 1) for x in (given.prior, given.added)
        )
        self.of_prior, self.of_added = (
            torch.zeros_like(x, memory_format=torch.contiguous_format)
            if x is not None and need
            else None
            for x, need in zip((given.prior, given.added), needs[4:], strict=True)
        )
        # Gradients of pose, weight, vote bias and coordinates that were found window by window.
        self._through_windows: Gradients = [None] * 4

    @cached_property
    def votes(self) -> TiledVotes:
        return TiledVotes(self.vote_map, self.dtype)

    @cached_property
    def found(self) -> VoteGradients:
        return VoteGradients(self.votes, *self.needs)

    def total(self) -> Tensor:
        """Return Σ_i û_ij."""
        if self.vote_map.window is not None:
            return WindowSums(self.vote_map, self.vote_map.window, self.dtype).sums()
        s = self._parents()
        for lanes in self.votes.lanes():
            self._put(s, lanes, self.votes.total(lanes))
        return s

    def mix(self, query: Tensor | None, adds: bool, record: Tensor | None) -> Tensor:
        """Return s of a query; the couplings are written to `record`."""
        votes, sums = self.votes, self._parents()
        for lanes in votes.lanes():
            q, s = self._lanes(query, lanes), votes.parents(lanes)
            for tile in votes.tiles(lanes):
                part = votes.votes(tile, votes.seen(tile))
                _, c = self._couplings(tile, part, q, adds)
                if record is not None:
                    there = votes.of_couplings(record.transpose(0, 1), tile)
                    there.copy_(votes.by_lane(c, lanes))
                self._add_mixed(s, c, part)
            self._put(sums, lanes, s)
        return sums

    def add_total(self, of_total: Tensor) -> None:
        """Keep the gradients that `total` has."""
        if self.vote_map.window is not None:
            sums = WindowSums(self.vote_map, self.vote_map.window, self.dtype)
            self._through_windows = sums.gradients(of_total, *self.needs)
            return
        for lanes in self.votes.lanes():
            self.found.add_to_total(lanes, self.votes.to_lanes(of_total.transpose(0, 1)[lanes]))

    def back(
        self, visit: Visit, query: Tensor | None, of_sum: Tensor | None, of_coupling: Tensor | None
    ) -> Tensor | None:
        """Keep the gradients that `mix` has, and return that of the query, if wanted."""
        if not visit.goes_on:
            return None
        votes = self.votes
        of_query = self._parents() if visit.to_query else None
        for lanes in votes.lanes():
            q, gamma = self._lanes(query, lanes), self._lanes(of_sum, lanes)
            of_q = votes.parents(lanes) if visit.to_query else None
            for tile in votes.tiles(lanes):
                seen = votes.seen(tile)
                part = votes.votes(tile, seen)
                soft, c = self._couplings(tile, part, q, visit.adds)
                of_b = self._of_logits(visit, tile, part, soft, gamma, of_coupling)
                if of_q is not None and of_b is not None:
                    self._add_mixed(of_q, of_b, part)
                pairs = ((c, gamma if visit.mixes else None), (of_b, q if visit.agrees else None))
                terms = [(x, y) for x, y in pairs if x is not None and y is not None]
                if terms:
                    # The votes have served; their memory takes their gradient, Σ a_ij x_j.
                    (amount, x), *rest = terms
                    torch.mul(amount.unsqueeze(2), x.unsqueeze(-2), out=part)
                    for amount, x in rest:
                        part.addcmul_(amount.unsqueeze(2), x.unsqueeze(-2))
                    self.found.add(tile, seen, part)
            if of_query is not None and of_q is not None:
                self._put(of_query, lanes, of_q)
        return of_query

    def gradients(self) -> Gradients:
        """Return the gradients of pose, weight, vote bias, coordinates, prior and added: all that
        was kept."""
        made = self.found.of(self.vote_map) if "found" in self.__dict__ else [None] * 4
        of_votes = [
            y if x is None else x if y is None else x.add_(y)
            for x, y in zip(made, self._through_windows, strict=True)
        ]
        return [*of_votes, self.of_prior, self.of_added]

    def _couplings(
        self, tile: Tile, part: Tensor, query: Tensor | None, adds: bool
    ) -> tuple[Tensor | None, Tensor]:
        """Return the softmax of the votes [t, j, d, p, b] of a tile, where there is one, and c with
        what is added, [t, j, p, b]."""
        votes, soft = self.votes, None
        if query is None and self.prior is None:
            c = votes.children.new_full(votes.couplings_shape(tile), self.share)
        else:
            if query is None:
                logits = votes.children.new_zeros(votes.couplings_shape(tile))
            else:
                logits = votes.along(part, query)
            if self.prior is not None:
                logits = self._plus(logits, self.prior, tile)
            c = soft = self._softmax(logits)
        if adds and self.added is not None:
            c = self._plus(c, self.added, tile)
        return soft, c

    def _softmax(self, logits: Tensor) -> Tensor:
        if not self.leaky:
            return softmax_over_parents(logits)
        nobody = logits.new_zeros(logits[:, :1].shape)
        return softmax_over_parents(torch.cat([logits, nobody], 1))[:, :-1]

    def _plus(self, values: Tensor, parameter: Tensor, tile: Tile) -> Tensor:
        votes = self.votes
        return (votes.by_lane(values, tile.lanes) + votes.of_couplings(parameter, tile)).flatten(-2)

    def _of_logits(
        self,
        visit: Visit,
        tile: Tile,
        part: Tensor,
        soft: Tensor | None,
        gamma: Tensor | None,
        of_coupling: Tensor | None,
    ) -> Tensor | None:
        """Return ∂b of a tile, [t, j, p, b]; keep those of prior and added."""
        votes = self.votes
        if not (visit.to_logits or visit.to_added):
            return None
        if gamma is not None:
            h = votes.along(part, gamma)
        else:
            h = votes.children.new_zeros(votes.couplings_shape(tile))
        if of_coupling is not None:
            h += votes.of_couplings(of_coupling.transpose(0, 1), tile).flatten(-2)
        if visit.to_added:
            self._add(self.of_added, h, tile)
        if soft is None or not visit.to_logits:
            return None
        of_b = soft * (h - (soft * h).sum(1, keepdim=True))
        if visit.to_prior:
            self._add(self.of_prior, of_b, tile)
        return of_b

    def _add_mixed(self, to: Tensor, amount: Tensor, part: Tensor) -> None:
        """Add Σ_i a_ij û_ij to [j, d, b]."""
        if part.shape[0] == part.shape[3] == 1:  # One child: in one pass, not three.
            to.addcmul_(amount[0], part[0, :, :, 0])
        else:
            to += self.votes.times(part, amount.unsqueeze(2)).sum((0, 3))

    def _add(self, gradient: Tensor | None, values: Tensor, tile: Tile) -> None:
        assert gradient is not None
        there = self.votes.of_couplings(gradient.transpose(0, 1), tile)
        there += self.votes.by_lane(values, tile.lanes).sum_to_size(there.shape)

    def _parents(self) -> Tensor:
        votes = self.votes
        return votes.children.new_empty(votes.n_batch, votes.n_windows, votes.n_out, votes.d_out)

    def _lanes(self, parents: Tensor | None, lanes: Lanes) -> Tensor | None:
        """Lay parents [b, p, j, d] of some lanes as [j, d, lane]."""
        return None if parents is None else self.votes.to_lanes(lanes.of(parents.transpose(0, 1)))

    def _put(self, parents: Tensor, lanes: Lanes, values: Tensor) -> None:
        parents.transpose(0, 1)[lanes] = self.votes.from_lanes(values, lanes)


def _forward(given: Given) -> Mixed:
    mixed, loop, rule = _shapes(given), given.loop, given.rule
    with without_autocast(mixed.last):
        mixing = TiledMixing(given, [False] * 6)
        query = given.start
        for t in range(loop.iterations):
            last = t == loop.iterations - 1
            kept = t - loop.iterations + loop.kept
            record = mixed.couplings[kept] if kept >= 0 else None
            adds = last and given.added is not None
            if query is None and given.prior is None and not adds:
                s = mixing.total() * loop.share
                if record is not None:
                    record.fill_(loop.share)
            else:
                s = mixing.mix(query, adds, record)
            (mixed.last if last else mixed.earlier[t]).copy_(s)
            query = None if last else rule.query(query, s)
    return mixed


def _backward(asked: Asked[Given]) -> Gradients:
    with without_autocast(asked.saved[0]):
        return _gradients(TiledMixing(asked.given, asked.needs[:6]), asked)


def _shapes(given: Given) -> Mixed:
    pose, loop, counts = given.made_of.pose, given.loop, given.made_of.counts()
    lanes, parents = counts[:2], counts[3:]
    dtype = torch.promote_types(given.made_of.dtype, torch.float32)
    return Mixed(
        pose.new_empty(*lanes, *parents, dtype=dtype),
        pose.new_empty(loop.iterations - 1, *lanes, *parents, dtype=dtype),
        pose.new_empty(loop.kept, *lanes, *counts[2:4], dtype=dtype),
    )


def _gradients(mixing: TiledMixing, asked: Asked[Given]) -> Gradients:
    """Go from the last iteration to the first; the query of each is made of the sums before."""
    given, loop, rule = asked.given, asked.given.loop, asked.given.rule
    (sums,), (of_last, of_earlier, of_couplings) = asked.saved, asked.gradients
    queries = [given.start]
    for s in sums:
        queries.append(rule.query(queries[-1], s))
    of_rule: list[Tensor | None] = [None, None]
    of_query: Tensor | None = None
    known = {visit.t: visit for visit in visits(asked)}
    for t in reversed(range(loop.iterations)):
        of_sum = of_last if t == len(sums) else None if of_earlier is None else of_earlier[t]
        if of_query is not None and t < len(sums):
            of_query, of_before, of_weight, of_bias = rule.back(sums[t], of_query)
            of_rule[0] = _added(of_rule[0], of_weight)
            if loop.detach != "states":
                of_sum, of_rule[1] = _added(of_sum, of_before), _added(of_rule[1], of_bias)
        visit = known.get(t)
        if visit is None:
            continue
        if visit.is_uniform:
            if visit.mixes and of_sum is not None:
                mixing.add_total(of_sum * loop.share)
            continue
        kept = t - loop.iterations + loop.kept
        of_coupling = None if of_couplings is None or kept < 0 else of_couplings[kept]
        of_query = _added(of_query, mixing.back(visit, queries[t], of_sum, of_coupling))
    return [*mixing.gradients(), of_query, *of_rule]


def _added(x: Tensor | None, y: Tensor | None) -> Tensor | None:
    return y if x is None else x if y is None else x + y


mix = Operator(
    "torchcaps::mixing",
    forward=_forward,
    shapes=_shapes,
    backward=_backward,
    saves=[1],
    what="fused routing",
    instead="route ops.materialise(vote_map) with the routing of torchcaps.ops",
)
