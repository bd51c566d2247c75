"""Routing dynamics on paper: perfect, frozen and partial routing, with and without the dead."""

import math

import pytest
import torch

from torchcaps.analysis import routing_dynamics
from torchcaps.analysis.dynamics import perfect_std
from torchcaps.types import Capsules, Window
from traces import even, layer, network, switching


def measured(coupling, lengths=None, **options):
    (row,) = routing_dynamics(network({"classes": coupling}, lengths), **options).layers
    return row


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("n", range(2, 33))
def test_perfect_routing_is_one(n, times):
    row = measured(switching(n, n).repeat(times, 1, 1))
    assert row.dyr == pytest.approx(1, abs=1e-15)
    assert row.dys == pytest.approx(n, rel=1e-15)
    # Of every child to every parent; §4.1 prints 0.3 for ten.
    perfect = torch.full((3, n), math.sqrt((1 - 1 / n) / n), dtype=torch.float64)
    torch.testing.assert_close(row.std, perfect, rtol=0, atol=1e-15)
    assert (row.n_parents, row.n_children) == (n, 3)
    assert (row.strongest, row.even) == (1, 1 / n)
    constant = measured(even(n * times, 3, n))
    assert (constant.dyr, constant.dys) == (0, 0)


def windowed(dead_parent=False):
    """One child a position of a 2×2 grid, two parents at each of the 2×1 windows of 1×2 slots."""
    window = Window((2, 2, 1), (1, 2), (1, 1))
    coupling = torch.zeros(2, 2, 2, 2, dtype=torch.float64)  # [k, p, i, j]
    coupling[0, 0, :, 0] = coupling[1, 0, :, 1] = 1  # Window 0 switches, window 1 does not.
    coupling[:, 1, :, 0] = 1
    lengths = torch.full((2, 4), 0.5, dtype=torch.float64)
    if dead_parent:
        lengths[:, 1] = 0
    parents = Capsules(lengths.unsqueeze(-1), lengths)
    children = Capsules(torch.ones(2, 4, 1, dtype=torch.float64))
    return (layer("conv", children, coupling, parents, window=window),)


def test_windows_are_means_over_slots():
    (row,) = routing_dynamics(windowed()).layers
    # Two of four slots are perfect, two are frozen.
    assert (row.dyr, row.dys) == pytest.approx((0.5, 1.0))
    assert (row.n_children, row.n_parents, row.even) == (4, 4, 0.5)
    assert row.mean.shape == (2, 2, 2)


def test_a_window_with_one_living_parent_has_no_routing():
    (row,) = routing_dynamics(windowed(dead_parent=True)).layers
    assert row.dyr == pytest.approx(0)
    assert row.n_parents == 3


def test_the_sweep_has_other_thresholds():
    """Parents of 0.02, 0.04 and 0.5, and an image-dependent tree among the first two alone."""
    coupling = torch.zeros(2, 3, 3)
    coupling[0, :, 0] = coupling[1, :, 1] = 1
    lengths = torch.tensor([[0.02, 0.04, 0.5]]).expand(2, -1)
    row = measured(coupling, {"classes": lengths})
    assert (row.n_parents, row.dyr) == (1, None)
    by_factor = {factor: rest for factor, *rest in row.sweep}
    assert [*by_factor] == [0.2, 0.5, 1.0, 2.0]
    # From 0.01 all three count, from 0.025 two, of which one never changes.
    three, two = perfect_std(3), perfect_std(2)
    assert by_factor[0.2] == [3, pytest.approx(1 / 3 / three), pytest.approx(1 / three)]
    assert by_factor[0.5] == [2, pytest.approx(1 / 4 / two), pytest.approx(1 / 2 / two)]
    assert by_factor[1.0] == by_factor[2.0] == [1, None, None]
