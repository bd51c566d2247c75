"""What the fused operators cost.

They hold the children once more, lane by lane, their gradient in the same order, parents, and a few
tiles: of votes, or where only their sum is asked for, of children and of weights.
"""

import math
from typing import Any

from torch import Tensor

from torchcaps.ops.costs import distance as distance_flops
from torchcaps.ops.costs import em as em_flops
from torchcaps.ops.costs.base import register, sizes_of
from torchcaps.ops.fused import distance, em, likely, mixing
from torchcaps.ops.fused.distance_tiles import Given
from torchcaps.ops.fused.tiles import TILE_BYTES, MadeOf, TiledVotes, size_of
from torchcaps.ops.operators import Asked

__all__: list[str] = []


def _on_meta(made_of: MadeOf) -> TiledVotes:
    """Act where tiles are laid out and nothing is copied."""
    moved: Any = (x.to("meta") if isinstance(x, Tensor) else x for x in made_of)
    return TiledVotes(MadeOf(*moved).vote_map, made_of.dtype)


def _total(made_of: MadeOf) -> int:
    """Count the products of the sum of all votes: children of a tile that share weights are summed
    first, but through windows, where it is a convolution."""
    products, votes = sizes_of(made_of).products, _on_meta(made_of)
    if made_of.window or not products:
        return products
    tile = next(votes.wide_tiles(next(votes.lanes())))
    return products // votes.positions * math.ceil(votes.positions / size_of(tile.positions))


def _mixed(given: mixing.Given) -> int:
    size = sizes_of(given.votes)
    if given.is_uniform:
        return _total(given.votes)
    return size.products + (1 + (given.query is not None)) * size.agreement


def _mixed_backward(asked: Asked[mixing.Given]) -> int:
    """Count votes that are made once, what they agree with, and gradients of poses and weights."""
    given, needs, size = asked.given, asked.needs, sizes_of(asked.given.votes)
    wanted, comes = mixing.terms(asked), asked.gradients[0] is not None
    if given.is_uniform:
        return comes * (needs[0] + needs[1]) * _total(given.votes)
    handed_on = wanted.mixes + wanted.agrees
    products = 1 + (handed_on > 0) * (needs[0] + needs[1])
    asks_h = comes and (wanted.to_logits or wanted.to_added)
    met = (given.query is not None) + asks_h + wanted.to_query + handed_on
    return products * size.products + met * size.agreement


def _of_mixing(given: mixing.Given, backward: bool) -> int:
    size = sizes_of(given.votes)
    if given.is_uniform:
        tiles = min(size.children // size.alike, TILE_BYTES) + min(size.weight, TILE_BYTES)
    else:
        tiles = _tiles(_on_meta(given.votes), 3 + backward)
    return _held(given.votes, backward, tiles + 2 * size.parents)


def _of_distance(given: Given, backward: bool) -> int:
    # How much a vote is shortened, and how far it lies.
    apart = 0 if backward else 2 * sizes_of(given.votes).couplings
    return apart + _of_tiles(given.votes, backward, 3 + backward)


def _of_em(given: em.Shared | em.Met, backward: bool) -> int:
    # A product where weights meet votes; backwards gradients of both.
    held = 2 if isinstance(given, em.Shared) else 1
    return _of_tiles(given.votes, backward, held * (1 + backward))


def _of_moves(given: likely.Likely, backward: bool) -> int:
    return backward * given.log_r.numel() * given.log_r.element_size()


def _of_tiles(made_of: MadeOf, backward: bool, held: int) -> int:
    parents = 6 * sizes_of(made_of).parents
    return _held(made_of, backward, _tiles(_on_meta(made_of), held) + parents)


def _held(made_of: MadeOf, backward: bool, tiles: int) -> int:
    """Count the gradient of the children, which is copied out when the tiles are gone."""
    children = sizes_of(made_of).children
    return children + max(children * backward, tiles)


def _tiles(votes: TiledVotes, held: int) -> int:
    """Count the bytes of so many that are there at once."""
    for lanes in votes.lanes():
        for tile in votes.tiles(lanes):
            pairs = math.prod(votes.couplings_shape(tile))
            return held * pairs * votes.d_out * votes.dtype.itemsize
    return 0


register(mixing.mix, _of_mixing, _mixed, _mixed_backward)
register(em.moments, _of_em, em_flops.moments, em_flops.backward)
register(em.distances, _of_em, em_flops.distances, em_flops.backward)
register(distance.measured, _of_distance, distance_flops.forward, distance_flops.backward)
register(likely.moves, _of_moves, lambda _: 0, lambda _: 0)
