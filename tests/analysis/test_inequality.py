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
    for row, found in zip(rows, gini(rows), strict=True):
        pairs = [abs(a - b) for a in row for b in row]
        assert found == pytest.approx(float(sum(pairs) / 36 / 2 / row.mean()), abs=1e-12)


def test_small_is_below_half_of_an_even_split():
    # Half of an even split of four is 0.125: two rows have two and no couplings below it.
    uneven = torch.tensor([0.8, 0.125, 0.075, 0.0])
    coupling = torch.stack([uneven, torch.full((4,), 0.25)]).expand(3, 2, 4)
    (layer,) = measured(coupling).layers
    assert layer.small == pytest.approx(2 / 8)
    # (−3 · 0 − 0.075 + 0.125 + 3 · 0.8) / 4, and none of the second row.
    assert layer.gini == pytest.approx(2.45 / 4 / 2)


def test_even_is_what_eleven_levels_take_for_an_even_split():
    # Of five parents 0.2: its level has all from 0.15 to 0.25, the ends go to even levels.
    coupling = torch.tensor([[[0.2, 0.16, 0.24, 0.14, 0.26], [0.2, 0.2, 0.2, 0.25, 0.15]]])
    (layer,) = measured(coupling.double()).layers
    assert layer.even == pytest.approx((3 + 5) / 10)


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


def test_the_grid_that_couplings_are_on_changes_no_other_level():
    """On 6 levels zero is even among ten parents, on 11 it is not."""
    measurement = MeasureInequality(grid=6)
    measurement.add(network({"classes": torch.zeros(2, 3, 10)}))
    (layer,) = measurement.result().layers
    assert (layer.even, dict(layer.levels)[11], dict(layer.levels)[6]) == (1, 0, 1)


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


def test_negative_couplings_have_no_gini():
    (layer,) = measured(torch.tensor([[[0.5, -0.5]], [[1.0, 0.0]]])).layers
    assert (layer.gini, layer.small) == (None, 0.5)


def test_the_sweep_has_other_thresholds_and_grids():
    # Four parents: an even split is 0.25, on a grid of 6 levels next to 0.2, of 21 its own.
    coupling = torch.tensor([[[0.02, 0.08, 0.18, 0.72], [0.25, 0.25, 0.25, 0.25]]]).double()
    (layer,) = measured(coupling).layers
    assert layer.sweep == ((0.1, 1 / 8), (0.25, 1 / 8), (0.5, 2 / 8), (0.75, 3 / 8))
    assert dict(layer.levels) == {6: 5 / 8, 11: 5 / 8, 21: 4 / 8, 129: 4 / 8}
    assert (layer.small, layer.even) == (dict(layer.sweep)[0.5], dict(layer.levels)[11])
