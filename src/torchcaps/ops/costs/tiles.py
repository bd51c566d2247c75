"""What the fused operators cost.

They hold the children once more, lane by lane, their gradient in the same order, and a few tiles.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from torchcaps.ops.costs import distance as distance_flops
from torchcaps.ops.costs import em as flops_of
from torchcaps.ops.costs.base import Cost, register
from torchcaps.ops.costs.loop import iterations, loop_backward_flops, loop_flops
from torchcaps.ops.fused import distance, em, likely, mixing, window_sums
from torchcaps.ops.fused.agreement import folds, tiled
from torchcaps.ops.fused.distance_tiles import Given
from torchcaps.ops.fused.loop import Given as Looped
from torchcaps.ops.fused.loop import visits
from torchcaps.ops.fused.tiles import MadeOf, TiledVotes, size_of
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
    made_of: MadeOf, tiled: Callable[[VoteMap, torch.dtype], TiledVotes] = TiledVotes
) -> _Sizes:
    weight, dtype = made_of.weight, made_of.dtype
    bias, coordinates = (
        None if x is None else x.to("meta") for x in (made_of.bias, made_of.coordinates)
    )
    # On "meta" the tiles are laid out and nothing is copied.
    on_meta = made_of._replace(
        pose=made_of.pose.to("meta"),
        weight=weight.to("meta"),
        bias=bias,
        coordinates=coordinates,
    )
    votes = tiled(on_meta.vote_map, dtype)
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
    size = _sizes(given.made_of, tiled)
    held = max(
        size.held_by_total if is_uniform else size.folded if size.folds else 2 * size.tile
        for is_uniform, _ in iterations(given)
    )
    held += size.children + size.seen + 4 * size.parents + size.sums
    return Cost(loop_flops(given, size), held)


def _mixed_backward(asked: Asked[Looped]) -> Cost:
    size, held = _sizes(asked.given.made_of, tiled), 0
    for visit in visits(asked):
        if visit.is_uniform:
            held = max(held, visit.mixes * (1 + size.through) * size.held_by_total)
        elif visit.goes_on:
            held = max(held, 2 * size.folded if size.folds else 3 * size.tile)
    held += 2 * size.seen + 2 * size.parents + (2 * asked.given.loop.iterations - 1) * size.sums
    return Cost(loop_backward_flops(asked, size), _held(size, asked.needs[0], held))


def _moments(given: em.Shared) -> Cost:
    size = _sizes(given.votes)
    return Cost(
        flops_of.moments(size.products),
        size.children + 3 * size.tile + size.seen + 4 * size.parents,
    )


def _moments_backward(asked: Asked[em.Shared]) -> Cost:
    size, needs = _sizes(asked.given.votes), asked.needs
    tiles = 6 * size.tile + 2 * size.seen + 4 * size.parents
    products = flops_of.moments_backward(size.products, needs[1:])
    return Cost(products, _held(size, needs[1], tiles))


def _distances(given: em.Met) -> Cost:
    size = _sizes(given.votes)
    return Cost(
        flops_of.distances(size.products),
        size.children + 2 * size.tile + size.seen + 2 * size.parents,
    )


def _distances_backward(asked: Asked[em.Met]) -> Cost:
    size, needs = _sizes(asked.given.votes), asked.needs
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
    size = _sizes(given.votes)
    # How much a vote is shortened, and how far it lies.
    held = (2 if given.how.iterations > 1 else 1) * size.couplings
    return Cost(
        distance_flops.forward(given, size.products, size.agreement, passes=2),
        size.children + held + 2 * size.tile + size.seen + 4 * size.parents,
    )


def _measured_backward(asked: Asked[Given]) -> Cost:
    size, needs = _sizes(asked.given.votes), asked.needs
    measured, mixed, recorded = distance_flops.back(asked)
    made = max(measured, mixed) + recorded + mixed * (needs[0] + needs[1])
    flops = made * size.products + (measured + mixed) * size.agreement
    return Cost(flops, _held(size, needs[0], 3 * size.tile + 2 * size.seen + 6 * size.parents))


def _held(size: _Sizes, needs_pose: bool, tiles: int) -> int:
    """Of a backward pass. The gradient of the children is copied out when the tiles are gone."""
    return size.children + (max(size.children, tiles) if needs_pose else tiles)


register(distance.measured, _measured, _measured_backward)
register(mixing.mix, _mixed, _mixed_backward)
register(em.moments, _moments, _moments_backward)
register(em.distances, _distances, _distances_backward)
register(likely.moves, _moves, _moves_backward)
