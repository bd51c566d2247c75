"""Sums for given couplings are those of the plain op from the materialised votes."""

import pytest
import torch

from contracts.forms import KINDS, leaves_of, vote_map_of
from torchcaps.ops import materialise
from torchcaps.ops.fused import tiles, weighted_sums
from torchcaps.ops.routing.common import weighted
from torchcaps.types import Capsules, VoteMap

MOVED = ("vote_bias", "coordinates")


@pytest.mark.parametrize("budget", [2**30, 700], ids=["one", "ragged"])
@pytest.mark.parametrize("own", [False, True], ids=["of-all", "of-each"])
@pytest.mark.parametrize("given", [(), MOVED], ids=["bare", "moved"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_law(kind, given, own, budget, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_BYTES", budget)
    kind = kind._replace(given=given, d_out=7)
    found = leaves_of(kind)
    *lead, slots, n_out, _ = materialise(vote_map_of(kind, found)).shape
    found["coupling"] = torch.randn(*(lead if own else ()), slots, n_out, dtype=torch.float64)
    results = []
    for route in (
        lambda vote_map, c: weighted(c.expand(*lead, slots, n_out), materialise(vote_map)),
        weighted_sums,
    ):
        own_leaves = {name: x.clone().requires_grad_() for name, x in found.items()}
        sums = route(vote_map_of(kind, own_leaves), own_leaves["coupling"])
        total = (sums * torch.linspace(-1, 1, sums.numel()).double().view(sums.shape)).sum()
        results.append((sums, *torch.autograd.grad(total, own_leaves.values())))
    torch.testing.assert_close(*results, rtol=0, atol=1e-10)


def test_half_precision_and_autocast_keep_the_dtype_of_votes():
    vote_map = VoteMap(Capsules(torch.randn(2, 6, 4)), torch.randn(6, 3, 5, 4))
    coupling = torch.rand(6, 3)
    exact = weighted_sums(vote_map, coupling)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = weighted_sums(vote_map, coupling)
    assert torch.equal(rounded, exact.to(torch.bfloat16))
