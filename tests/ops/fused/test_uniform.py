"""Fused uniform routing is the plain one of the materialised votes, and one product."""

import re

import pytest
import torch

from ops.fused.vote_maps import KINDS, largest_errors, leaves, named
from ops.fused.vote_maps import vote_map as map_of
from torchcaps.errors import TorchcapsError
from torchcaps.ops import materialise
from torchcaps.ops import uniform_routing as plain
from torchcaps.ops.fused import tiles, uniform_routing
from torchcaps.types import Capsules, VoteMap

OFFSETS = ("vote_bias", "coordinates", "bias")


def test_shared_weights_on_paper():
    # W (u_1 + u_2) / 2 = 3 · (1 + 2) / 2 = 9/2 for one parent, 2 · 3 / 2 = 3 for the other
    pose = torch.tensor([[1.0], [2.0]])
    weight = torch.tensor([[[3.0]], [[2.0]]])
    routed = uniform_routing(VoteMap(Capsules(pose), weight, "all"), squash="none", keep="last")
    assert routed.parents.pose.flatten().tolist() == pytest.approx([4.5, 3.0])
    assert routed.steps[0].coupling.tolist() == [[0.5, 0.5]] * 2


@pytest.mark.drawn(5)
@pytest.mark.parametrize("normalise", ["softmax", "mean"])
@pytest.mark.parametrize("parameters", [(), OFFSETS], ids=len)
@pytest.mark.parametrize("tile_bytes", [2**30, 2400, 1], ids=["one", "ragged", "single"])
@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_the_law(kind, parameters, normalise, tile_bytes, dtype, tolerance, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_BYTES", tile_bytes)
    for squash in ("hinton", "exp", "none"):
        found = leaves(kind, dtype=dtype, parameters=parameters)
        options = {"normalise": normalise, "squash": squash, "keep": "steps"}
        errors = largest_errors(plain, uniform_routing, kind, found, **options)
        assert max(errors.values()) <= 10 * tolerance, errors


@pytest.mark.parametrize("lead", [(), (1,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_batch_axes(kind, lead):
    found = leaves(kind, lead=lead, parameters=OFFSETS)
    errors = largest_errors(plain, uniform_routing, kind, found, keep="last")
    assert max(errors.values()) <= 1e-10, errors


def test_keep_changes_no_bit():
    found = leaves(KINDS[0], parameters=("bias",))
    none, last = (
        uniform_routing(map_of(KINDS[0], found), bias=found["bias"], keep=keep)
        for keep in ("none", "last")
    )
    assert none.steps == ()
    assert torch.equal(none.parents.pose, last.parents.pose)


VOTES = VoteMap(Capsules(torch.zeros(2, 12, 3)), torch.zeros(12, 5, 4, 3))


@pytest.mark.parametrize(
    ("vote_map", "options"),
    [
        (VOTES._replace(weight=VOTES.weight[1:]), {}),
        (VOTES, {"normalise": "sum"}),
        (VOTES, {"squash": "expo"}),
        (VOTES, {"keep": "step"}),
        (VOTES, {"bias": torch.zeros(4, 5)}),
    ],
)
def test_errors_are_those_of_the_plain_op(vote_map, options):
    with pytest.raises(TorchcapsError) as expected:
        plain(materialise(vote_map), **options)
    with pytest.raises(TorchcapsError, match=f"^{re.escape(str(expected.value))}$"):
        uniform_routing(vote_map, **options)
