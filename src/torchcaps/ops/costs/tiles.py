"""What the fused operators cost.

They hold the children once more, lane by lane, their gradient in the same order, and a few tiles.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.ops.costs import em as flops_of
from torchcaps.ops.costs.base import Cost, register
from torchcaps.ops.costs.loop import iterations, loop_backward_flops, loop_flops
from torchcaps.ops.fused import distance, em, likely, mixing, window_sums
from torchcaps.ops.fused.agreement import folds, tiled
from torchcaps.ops.fused.distance_tiles import Given
from torchcaps.ops.fused.loop import Given as Looped
from torchcaps.ops.fused.loop import visits
from torchcaps.ops.fused.tiles import TiledVotes, size_of, vote_map_of
from torchcaps.ops.operators import Asked
from torchcaps.types import VoteMap

__all__: list[str] = []


class _Sizes(NamedTuple):
    """What the tiles of a vote map come to."""

    products: int  # FLOPs of making all votes
    summed: int  # the same after the children of a wide tile that share weights are summed
    folding: int  # and where parents are folded onto the children of a tile
    agreement: int  # FLOPs of one multiply-add a number of all votes
    children: int  # bytes
    couplings: int
    weight: int
    parents: int  # of the lanes that are done at once
    tile: int  # votes
    seen: int  # children of a tile
    wide: int  # children of a wide tile
    laid: int  # and its weights, laid out anew
    chunk: int  # what one convolution sees and gives
    folds: bool  # in dynamic routing votes are not made
    met: int  # FLOPs of one multiply-add a number of the children of all parents
    folded: int  # bytes of those of a tile
    sums: int  # bytes of all parents
    through: bool  # windows

    @property
    def total(self) -> int:
        # Through windows by a convolution.
        return self.products if self.through else self.summed

    @property
    def held_by_total(self) -> int:
        return 2 * self.weight + self.chunk if self.through else self.wide + self.laid

    def asked(self, times: int) -> int:
        if self.folds:
            return times * (self.folding + self.met)
        return self.products + times * self.agreement

    def handed_on(self, terms: int, needs: Sequence[bool], known: bool) -> int:
        made = needs[0] + needs[1]
        if self.folds:
            met = needs[1] * (terms - known) + needs[0] * terms
            return made * terms * self.folding + met * self.met
        some = any(needs[:4]) and terms > 0
        return some * (terms * self.agreement + made * self.products)


def _sizes(
    pose: Tensor,
    weight: Tensor,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    vote_bias: Tensor | None = None,
    coordinates: Tensor | None = None,
    tiled: Callable[[VoteMap, torch.dtype], TiledVotes] = TiledVotes,
) -> _Sizes:
    # On "meta" the tiles are laid out and nothing is copied.
    bias, places = (None if x is None else x.to("meta") for x in (vote_bias, coordinates))
    vote_map = vote_map_of(pose.to("meta"), weight.to("meta"), bias, places, sharing, kind, window)
    votes = tiled(vote_map, dtype)
    lanes = next(votes.lanes(), None)
    tile = None if lanes is None else next(votes.tiles(lanes), None)
    numbers = votes.n_batch * votes.n_windows * votes.n_in * votes.n_out * votes.d_out
    a_tile = a_part = some = a_wide = laid = 0
    parts = wide_parts = 1
    if lanes is not None and tile is not None:
        many = size_of(tile.types) * size_of(tile.positions)
        parts = math.ceil(votes.positions / size_of(tile.positions))
        wide = next(votes.wide_tiles(lanes))
        wide_parts = math.ceil(votes.positions / size_of(wide.positions))
        laid = size_of(wide.types) * votes.weight[0].numel() * dtype.itemsize
        a_wide = size_of(wide.types) * size_of(wide.positions) * votes.count(lanes)
        a_wide *= votes.d_in * dtype.itemsize
        a_part = many * votes.count(lanes) * dtype.itemsize
        a_tile = a_part * votes.n_out * votes.d_out
        some = votes.count(lanes) * votes.n_out * votes.d_out * dtype.itemsize
    image = votes.n_children * votes.d_in * dtype.itemsize
    given = votes.n_windows * votes.n_out * votes.d_out * dtype.itemsize
    one = 2 * numbers * votes.k // max(1, votes.positions)
    return _Sizes(
        products=2 * numbers * votes.k,
        summed=one * wide_parts,
        folding=one * parts,
        agreement=2 * numbers,
        children=votes.n_batch * image,
        couplings=numbers // votes.d_out * dtype.itemsize,
        weight=weight.numel() * dtype.itemsize,
        parents=some,
        tile=a_tile,
        seen=a_part * votes.k * votes.rows,
        wide=a_wide,
        laid=laid,
        chunk=min(votes.n_batch, max(1, window_sums.CHUNK_BYTES // max(1, image)))
        * (image + given),
        folds=folds(votes),
        met=2 * numbers * votes.d_in // max(1, votes.d_out),
        folded=a_part * votes.n_out * votes.d_in,
        sums=votes.n_batch * given,
        through=votes.window is not None,
    )


def _mixed(given: Looped) -> Cost:
    size = _sizes_of_loop(given)
    held = max(
        size.held_by_total if is_uniform else size.folded if size.folds else 2 * size.tile
        for is_uniform, _ in iterations(given)
    )
    held += size.children + size.seen + 4 * size.parents + size.sums
    return Cost(loop_flops(given, size), held)


def _mixed_backward(asked: Asked[Looped]) -> Cost:
    size, held = _sizes_of_loop(asked.given), 0
    for visit in visits(asked):
        if visit.is_uniform:
            held = max(held, visit.mixes * (1 + size.through) * size.held_by_total)
        elif visit.goes_on:
            held = max(held, 2 * size.folded if size.folds else 3 * size.tile)
    held += 2 * size.seen + 2 * size.parents + (2 * asked.given.loop.iterations - 1) * size.sums
    return Cost(loop_backward_flops(asked, size), _held(size, asked.needs[0], held))


def _sizes_of_loop(given: Looped) -> _Sizes:
    votes = given.made_of
    made_of = (votes.pose, votes.weight, votes.sharing, votes.kind, votes.window, votes.dtype)
    return _sizes(*made_of, votes.bias, votes.coordinates, tiled)


def _moments(given: em.Shared) -> Cost:
    size = _sizes_of(given.votes)
    return Cost(
        flops_of.moments(size.products),
        size.children + 3 * size.tile + size.seen + 4 * size.parents,
    )


def _moments_backward(asked: Asked[em.Shared]) -> Cost:
    size, needs = _sizes_of(asked.given.votes), asked.needs
    tiles = 6 * size.tile + 2 * size.seen + 4 * size.parents
    products = flops_of.moments_backward(size.products, needs[1:])
    return Cost(products, _held(size, needs[1], tiles))


def _distances(given: em.Met) -> Cost:
    size = _sizes_of(given.votes)
    return Cost(
        flops_of.distances(size.products),
        size.children + 2 * size.tile + size.seen + 2 * size.parents,
    )


def _distances_backward(asked: Asked[em.Met]) -> Cost:
    size, needs = _sizes_of(asked.given.votes), asked.needs
    tiles = 5 * size.tile + 2 * size.seen + 4 * size.parents
    products = flops_of.distances_backward(size.products, needs[2:])
    return Cost(products, _held(size, needs[2], tiles))


def _moves(_: likely.Likely) -> Cost:
    return Cost(0, 0)


def _moves_backward(asked: Asked[likely.Likely]) -> Cost:
    log_r = asked.given.log_r
    couplings = log_r.numel() * log_r.element_size()
    return Cost(0, couplings if asked.gradients[-1] is None else 2 * couplings)


def _measured(given: Given) -> Cost:
    size, updates = _sizes_of(given.votes), given.how.iterations - 1
    # Votes are measured, then mixed; shortened ones in the first iteration too.
    agreements = 1 + (1 + given.how.with_slopes) * updates
    flops = (1 + 2 * updates) * size.products + agreements * size.agreement
    # How much a vote is shortened, and how far it lies.
    held = (2 if updates else 1) * size.couplings
    return Cost(flops, size.children + held + 2 * size.tile + size.seen + 4 * size.parents)


def _measured_backward(asked: Asked[Given]) -> Cost:
    size, needs, (sums, slopes, _) = _sizes_of(asked.given.votes), asked.needs, asked.saved
    of_couplings = asked.gradients[-1]
    added, wanted = any(needs[:5]), needs[0] + needs[1]
    every = added and asked.given.how.detach == "none"
    goes_back, flops = every or any(needs[5:]), 0
    for back in range(len(sums)):
        first, mixes = back == len(sums) - 1, every or (added and back == 0)
        if not mixes and (first or not goes_back):
            continue
        flops += size.products
        if of_couplings is not None and back < len(of_couplings) and not first:
            flops += size.products if goes_back and len(slopes) else 0
        flops += size.agreement if goes_back and not first else 0
        if mixes:
            flops += wanted * size.products + size.agreement
    return Cost(flops, _held(size, needs[0], 3 * size.tile + 2 * size.seen + 6 * size.parents))


def _sizes_of(made_of: Sequence[Any]) -> _Sizes:
    """Of the arguments that EM and inverted routing share."""
    pose, weight, *_, sharing, kind, window, dtype = made_of
    return _sizes(pose, weight, sharing, kind, window, dtype)


def _held(size: _Sizes, needs_pose: bool, tiles: int) -> int:
    """Of a backward pass. The gradient of the children is copied out when the tiles are gone."""
    return size.children + (max(size.children, tiles) if needs_pose else tiles)


register(distance.measured, _measured, _measured_backward)
register(mixing.mix, _mixed, _mixed_backward)
register(em.moments, _moments, _moments_backward)
register(em.distances, _distances, _distances_backward)
register(likely.moves, _moves, _moves_backward)
