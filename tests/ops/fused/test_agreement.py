"""Folded tiles give the answers of made ones, which the laws of the operators hold to the plain."""

import pytest
import torch

from contracts.forms import KINDS, leaves_of, vote_map_of
from torchcaps.ops.fused import tiles
from torchcaps.ops.fused.agreement import FoldedTile, MadeTile, folds, tiled
from torchcaps.types import Capsules, VoteMap

VECTORS = [kind for kind in KINDS if kind.pose == "vector"]


def votes_of(kind, given=(), d_out=4):
    kind = kind._replace(given=given, d_out=d_out)
    return tiles.TiledVotes(vote_map_of(kind, leaves_of(kind)), torch.float64)


def mixed(part, votes, lanes, amount):
    sums = votes.parents(lanes)
    part.add_mixed(sums, amount)
    return sums


@pytest.fixture(params=[2**30, 700], ids=["one", "ragged"])
def budget(request, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_BYTES", request.param)


@pytest.mark.parametrize("d_out", [3, 4, 7])
@pytest.mark.parametrize("kind", VECTORS, ids=str)
def test_both_give_one_answer(kind, d_out, budget):
    votes = votes_of(kind, d_out=d_out)
    for lanes in votes.lanes():
        parents, others = (torch.randn_like(votes.parents(lanes)) for _ in range(2))
        for tile in votes.tiles(lanes):
            amount, more = (torch.randn(votes.couplings_shape(tile)).double() for _ in range(2))
            answers = []
            for make in (MadeTile, FoldedTile):
                part = make(votes, tile)
                found = tiles.VoteGradients(votes, True, True, False, False)
                answer = [
                    part.along(parents),
                    mixed(part, votes, lanes, amount),
                    part.along(others),
                ]
                # The order of what is asked changes nothing.
                answer.append(mixed(part, votes, lanes, more))
                part.add(found, [(amount, parents), (more, others)])
                answers.append([*answer, found.pose, found.weight])
            for fast, theirs in zip(*answers, strict=True):
                torch.testing.assert_close(fast, theirs, rtol=0, atol=1e-12)


def test_one_term_and_one_gradient():
    votes = votes_of(VECTORS[0])
    lanes = next(votes.lanes())
    tile = next(votes.tiles(lanes))
    amount, parents = torch.randn(votes.couplings_shape(tile)).double(), votes.parents(lanes) + 1.5
    for pose, weight in ((True, False), (False, True)):
        gradients = []
        for make in (MadeTile, FoldedTile):
            found = tiles.VoteGradients(votes, pose, weight, False, False)
            make(votes, tile).add(found, [(amount, parents)])
            gradients.append(found.pose if pose else found.weight)
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_only_what_is_a_product_of_smaller_children_is_folded():
    assert all(folds(votes_of(kind, d_out=7)) for kind in VECTORS)
    # Of one size there is nothing to save but what children share.
    assert [folds(votes_of(kind)) for kind in VECTORS] == [k.sharing != "none" for k in VECTORS]
    assert not any(folds(votes_of(kind)) for kind in KINDS if kind.pose == "matrix")
    for name in ("vote_bias", "coordinates"):
        assert not any(folds(votes_of(kind, (name,), d_out=7)) for kind in VECTORS)
    wide = VoteMap(Capsules(torch.zeros(12, 8)), torch.zeros(12, 5, 4, 8))
    assert not folds(tiles.TiledVotes(wide, torch.float32))


def test_along_meets_vote_by_vote():
    votes = torch.ones(2, 3, 4, 1, 5).double()
    parents = torch.arange(4.0).view(1, 4, 1).expand(3, 4, 5)
    tiled = votes_of(VECTORS[0])
    assert torch.equal(tiled.along(votes, parents.double()), torch.full((2, 3, 1, 5), 6.0).double())


def test_tiles_that_fold_cut_children_before_lanes(monkeypatch):
    children, parents, lanes, d_in, d_out = 12, 10, 64, 4, 8
    monkeypatch.setattr(tiles, "TILE_BYTES", 4 * parents * lanes * d_in)
    vote_map = VoteMap(
        Capsules(torch.zeros(lanes, children, d_in)), torch.zeros(children, parents, d_out, d_in)
    )
    folded, made = tiled(vote_map, torch.float32), tiles.TiledVotes(vote_map, torch.float32)
    # One child of all lanes; votes, twice as large, of four children and an eighth of the lanes.
    assert [folded.count(lanes) for lanes in folded.lanes()] == [64]
    assert len(list(folded.tiles(next(folded.lanes())))) == 12
    assert [made.count(lanes) for lanes in made.lanes()] == [8] * 8
    assert len(list(made.tiles(next(made.lanes())))) == 3
    # The sum of all votes makes none: a tile has as many bytes of children, or of weights.
    wide = [tile.types for tile in folded.wide_tiles(next(folded.lanes()))]
    assert wide == [slice(0, 6), slice(6, 12)]
