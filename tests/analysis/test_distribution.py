"""Histograms of couplings on paper: borders, values outside, classes."""

import pytest
import torch

from torchcaps.analysis import MeasureCouplings, coupling_counts
from traces import network, result_of


def test_borders_on_paper():
    values = torch.tensor([-0.1, 0.0, 0.24, 0.25, 0.5, 0.75, 1.0, 1.1])
    # Lower borders belong to their bins, 1 to the last.
    assert coupling_counts(values, bins=4).tolist() == [1, 2, 1, 1, 2, 1]
    assert coupling_counts(torch.full((3, 2), 0.5), bins=1).tolist() == [0, 6, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_levels_of_a_grid_are_borders_in_every_precision(dtype):
    """0.7 · 20 is 13.9999998 in float32."""
    levels = torch.tensor([k / 10 for k in range(11)], dtype=torch.float64).to(dtype)
    counts = coupling_counts(levels, bins=20)
    assert counts[1:-1].nonzero().flatten().tolist() == [*range(0, 20, 2), 19]
    assert (int(counts[0]), int(counts[-1])) == (0, 0)


def test_loops_agree():
    generator = torch.Generator().manual_seed(0)
    coupling = torch.rand(11, 5, 3, generator=generator) * 1.4 - 0.2
    predicted = torch.randint(3, (11,), generator=generator)
    (layer,) = result_of(MeasureCouplings(), network({"classes": coupling}), predicted).layers
    flat = coupling.double().flatten().tolist()
    assert layer.below == sum(c < 0 for c in flat)
    assert layer.above == sum(c > 1 for c in flat)
    assert layer.counts.tolist() == [
        sum(0 <= c <= 1 and min(int(c * 20), 19) == bin for c in flat) for bin in range(20)
    ]
