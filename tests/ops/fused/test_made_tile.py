"""Tiles of votes, whose answers the laws of the operators hold to the plain."""

import torch

from contracts.forms import KINDS, leaves_of, vote_map_of
from torchcaps.ops.fused import tiles
from torchcaps.types import Capsules, VoteMap


def test_along_meets_vote_by_vote():
    votes = torch.ones(2, 3, 4, 1, 5).double()
    parents = torch.arange(4.0).view(1, 4, 1).expand(3, 4, 5)
    kind = KINDS[0]
    tiled = tiles.TiledVotes(vote_map_of(kind, leaves_of(kind)), torch.float64)
    assert torch.equal(tiled.along(votes, parents.double()), torch.full((2, 3, 1, 5), 6.0).double())


def test_lanes_are_cut_before_children(monkeypatch):
    children, parents, lanes, d_in, d_out = 12, 10, 64, 4, 8
    monkeypatch.setattr(tiles, "TILE_BYTES", 4 * parents * lanes * d_in)
    vote_map = VoteMap(
        Capsules(torch.zeros(lanes, children, d_in)), torch.zeros(children, parents, d_out, d_in)
    )
    made = tiles.TiledVotes(vote_map, torch.float32)
    # Votes of four children and an eighth of the lanes.
    assert [made.count(lanes) for lanes in made.lanes()] == [8] * 8
    assert len(list(made.tiles(next(made.lanes())))) == 3
    # The sum of all votes makes none: a tile has as many bytes of children, or of weights.
    wide = [tile.types for tile in made.wide_tiles(next(made.lanes()))]
    assert wide == [slice(0, 6), slice(6, 12)]
