"""Gini coefficients and small couplings on paper, against pairs, in batches."""

import pytest
import torch

from torchcaps.analysis import MeasureInequality, gini, quantise
from traces import network


def measured(*couplings):
    measurement = MeasureInequality()
    for coupling in couplings:
        measurement.add(network({"classes": coupling}))
    return measurement.result()


def test_extremes():
    assert gini(torch.full((2, 3, 4), 0.25)).tolist() == [[0.0] * 3] * 2
    assert gini(torch.eye(4)).tolist() == [0.75] * 4
    assert gini(torch.zeros(1, 4)).tolist() == [0.0]


def test_on_paper():
    # (−3 · 0 + −1 · 0.1 + 1 · 0.3 + 3 · 0.6) / (4 · 1), whatever the order and the sum.
    row = torch.tensor([0.3, 0.0, 0.6, 0.1], dtype=torch.float64)
    assert gini(torch.stack([row, 7 * row])).tolist() == pytest.approx([0.5, 0.5], abs=1e-15)


def test_gini_is_half_the_mean_difference_over_the_mean():
    rows = torch.rand(5, 6, dtype=torch.float64)
    apart = (rows[:, :, None] - rows[:, None, :]).abs().mean((1, 2))
    torch.testing.assert_close(gini(rows), apart / 2 / rows.mean(1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("grid", [6, 11, (11, 6)])
def test_an_even_split_that_was_rounded_is_one(grid):
    """On 6 levels a tenth is rounded to zero, and was called small, and nowhere even."""
    levels = [grid] * 2 if isinstance(grid, int) else grid
    even = torch.zeros(4, 3, 10).softmax(-1)
    rounded = {f"layer {k}": quantise(even, levels=each) for k, each in enumerate(levels)}
    measurement = MeasureInequality(levels=(), grid=grid)
    measurement.add(network(rounded))
    for layer in measurement.result().layers:
        assert (layer.small, layer.even, layer.gini) == (0, 1, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_even_split_half_way_between_two_levels_is_on_its_own_level(dtype):
    # Of twenty parents 0.05, between 0 and 0.1; of ten 0.1, between 0 and 0.2 of six levels.
    (layer,) = measured(torch.zeros(2, 3, 20, dtype=dtype).softmax(-1)).layers
    assert layer.even == 1
    (layer,) = measured(torch.zeros(2, 3, 10, dtype=dtype).softmax(-1)).layers
    assert dict(layer.levels)[6] == 1


def test_a_level_of_the_grid_at_half_of_an_even_split_is_not_below_it():
    # A level of 21 from 0 to 1, with ten parents: 0.05, rounded down to float32 or up.
    for level in (0.05, 0.05 * (1 - 1e-7)):
        coupling = torch.tensor([[[level] * 9 + [1 - 9 * level]]], dtype=torch.float64)
        (layer,) = measured(coupling).layers
        assert layer.small == 0
