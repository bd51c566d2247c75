"""Votes a tile at a time: every one once, none too large, and all of them the plain op's."""

import subprocess
import sys

import pytest
import torch

from contracts.forms import KINDS, leaves_of, vote_map_of
from torchcaps.ops import materialise
from torchcaps.ops.fused import tiles
from torchcaps.types import Capsules, VoteMap

VOTE_BYTES = 5 * 4 * 8
# Everything in one tile; several lanes and children with a remainder; one vote a tile.
BUDGETS = {"one": 2**30, "ragged": 5 * 3 * VOTE_BYTES, "single": 1}


@pytest.fixture(params=BUDGETS.values(), ids=BUDGETS)
def budget(request, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_BYTES", request.param)
    monkeypatch.setattr(tiles, "CHILDREN", 5)
    return request.param


def size(part):
    return part.stop - part.start


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_tiles_hold_every_vote_once_and_keep_to_the_budget(kind, budget):
    vote_map = vote_map_of(kind, leaves_of(kind._replace(batch=(7,))))
    votes = tiles.TiledVotes(vote_map, torch.float64)
    every = [tile for lanes in votes.lanes() for tile in votes.tiles(lanes)]
    seen = torch.zeros(votes.n_windows, 7, votes.positions, votes.types)
    for tile in every:
        lanes = tile.lanes
        seen[lanes.windows, lanes.batch, tile.positions, tile.types] += 1
        number = size(tile.types) * size(tile.positions) * votes.count(lanes)
        assert number * VOTE_BYTES <= max(budget, VOTE_BYTES)
    assert torch.equal(seen, torch.ones_like(seen))
    if budget == BUDGETS["ragged"]:
        sizes = {(size(t.types), size(t.positions), votes.count(t.lanes)) for t in every}
        assert len(sizes) > 1, "tiles should differ in size, or no remainder is tested"


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_tiles_are_the_votes(kind, budget):
    kind = kind._replace(given=("vote_bias", "coordinates"))
    vote_map = vote_map_of(kind, leaves_of(kind))
    votes = tiles.TiledVotes(vote_map, torch.float64)
    expected = materialise(vote_map).reshape(2, -1, votes.n_in, 5, 4).transpose(0, 1)
    for lanes in votes.lanes():
        total = votes.from_lanes(votes.total(lanes), lanes)
        torch.testing.assert_close(total, lanes.of(expected).sum(2), rtol=0, atol=1e-12)
        for tile in votes.tiles(lanes):
            part = votes.votes(tile, votes.seen(tile)).movedim(2, -1)  # [t, j, p, b, d]
            part = torch.unflatten(part, 3, (size(lanes.windows), size(lanes.batch)))
            if kind.pose == "matrix":  # columns before rows
                part = torch.unflatten(part, -1, (2, 2)).transpose(-1, -2).flatten(-2)
            theirs = torch.unflatten(lanes.of(expected), 2, (votes.positions, votes.types))
            theirs = theirs[:, :, tile.positions, tile.types].permute(3, 4, 2, 0, 1, 5)
            torch.testing.assert_close(part, theirs, rtol=0, atol=1e-12)


# Peak of resident memory that one forward and backward pass adds, less the gradient of the weights.
PEAK = """
import sys
import torch
from torchcaps.ops import dynamic_routing, fused, materialise
from torchcaps.types import Capsules, VoteMap

torch.set_num_threads(1)
way, sharing, *numbers = sys.argv[1:]
n_in, n_out, iterations, batch = map(int, numbers)

def run(n_in, n_out, batch):
    pose = torch.randn(batch, n_in, 8, requires_grad=True)
    shape = (n_out, 16, 8) if sharing == "all" else (n_in, n_out, 16, 8)
    weight = torch.randn(shape).mul_(0.1).requires_grad_()
    vote_map = VoteMap(Capsules(pose), weight, sharing)
    before = peak()
    if way == "plain":
        routed = dynamic_routing(materialise(vote_map), iterations=iterations)
    else:
        routed = fused.dynamic_routing(vote_map, iterations=iterations)
    routed.parents.pose.sum().backward()
    return peak() - before - weight.nbytes / 2**20

def peak():
    # Not ru_maxrss: a child inherits that of its parent, who runs the other tests.
    (line,) = (x for x in open("/proc/self/status") if x.startswith("VmHWM:"))
    return int(line.split()[1]) / 2**10

run(8, 8, 2)
print(run(n_in, n_out, batch))
"""


def peak(*arguments):
    """In MB."""
    command = [sys.executable, "-c", PEAK, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return float(done.stdout)


def growth(way, sharing):
    """MB that 2.3 times as many votes add, of as many children and parents together; both times the
    votes fill more than a tile."""
    few, many = (peak(way, sharing, 512 - n, n, 3, 32) for n in (64, 256))
    return many - few


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["none", "all"])
def test_memory_does_not_grow_with_the_votes(sharing):
    # Votes of 16 float32, more than once: at least their 75 MB.
    plain = growth("plain", sharing)
    assert plain > 75
    # A peak of resident memory is uncertain by some MB; couplings, one number a vote, are 5.
    assert growth("fused", sharing) < plain / 15


@pytest.mark.slow
def test_memory_does_not_grow_with_iterations():
    few, many = (peak("fused", "none", 512, 16, t, 64) for t in (2, 10))
    assert many < 1.25 * few + 2


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
