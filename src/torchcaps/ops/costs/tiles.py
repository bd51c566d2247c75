"""What the fused operators cost.

They hold the children once more, lane by lane, their gradient in the same order, parents, and a few
tiles: of votes, or where only their sum is asked for, of children and of weights.
"""

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from torchcaps.ops.costs import distance as distance_flops
from torchcaps.ops.costs import em as em_flops
from torchcaps.ops.costs import loop
from torchcaps.ops.costs.base import register, sizes_of
from torchcaps.ops.fused import distance, em, likely, mixing
from torchcaps.ops.fused.distance_tiles import Given
from torchcaps.ops.fused.loop import Given as Looped
from torchcaps.ops.fused.tiles import TILE_BYTES, MadeOf, Tile, TiledVotes, size_of

__all__: list[str] = []


def _on_meta(made_of: MadeOf) -> TiledVotes:
    """Act where tiles are laid out and nothing is copied."""
    moved: Any = (x.to("meta") if isinstance(x, Tensor) else x for x in made_of)
    return TiledVotes(MadeOf(*moved).vote_map, made_of.dtype)


def _mixing(made_of: MadeOf) -> loop.Mixing:
    size, votes = sizes_of(made_of), _on_meta(made_of)
    if not size.products:
        return loop.Mixing(0, 0, 0)

    def products(tiles: Iterator[Tile]) -> int:
        """Count products where the children of a tile that share weights are summed first."""
        parts = math.ceil(votes.positions / size_of(next(tiles).positions))
        return size.products // votes.positions * parts

    lanes = next(votes.lanes())
    # Through windows by a convolution.
    total = size.products if made_of.window else products(votes.wide_tiles(lanes))
    return loop.Mixing(size.products, size.agreement, total)


def _of_loop(given: Looped, backward: bool) -> int:
    size, votes = sizes_of(given.made_of), _on_meta(given.made_of)
    if loop.is_uniform(given):
        tiles = min(size.children, TILE_BYTES) + min(size.weight, TILE_BYTES)
    else:
        tiles = _tiles(votes, 3 + backward)
    return _held(given.made_of, backward, tiles + 2 * given.loop.iterations * size.parents)


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


register(
    mixing.mix,
    _of_loop,
    lambda given: loop.forward(given, _mixing(given.made_of)),
    lambda asked: loop.backward(asked, _mixing(asked.given.made_of)),
)
register(em.moments, _of_em, em_flops.moments, em_flops.backward)
register(em.distances, _of_em, em_flops.distances, em_flops.backward)
register(distance.measured, _of_distance, distance_flops.forward, distance_flops.backward)
register(likely.moves, _of_moves, lambda _: 0, lambda _: 0)
