"""The grid on paper: ends, steps, halves, and couplings outside of [0, 1]."""

import pytest
import torch

from torchcaps.analysis import quantise
from torchcaps.analysis.quantise import quantised_index


@pytest.mark.parametrize(
    ("levels", "step"), [(2, 1.0), (6, 0.2), (11, 0.1), (21, 0.05), (129, 1 / 128)]
)
def test_levels_lie_one_step_apart_and_stay(levels, step):
    grid = torch.arange(levels, dtype=torch.float64) / (levels - 1)
    assert grid[1] - grid[0] == pytest.approx(step)
    assert quantised_index(grid, levels=levels).tolist() == list(range(levels))
    assert torch.equal(quantise(grid, levels=levels), grid)
    # Less than half a step does not move a value to another level.
    moved = grid + 0.49 * step
    assert torch.equal(quantise(moved, levels=levels), grid)


def test_on_paper():
    coupling = torch.tensor([0.04, 0.06, 0.333, 0.95, 1.0], dtype=torch.float64)
    assert quantised_index(coupling).tolist() == [0, 1, 3, 10, 10]
    # 0.25 lies half way between levels 2 and 3 of eleven.
    assert quantised_index(torch.tensor([0.25, 0.75])).tolist() == [2, 8]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("share", "levels", "index"),
    # One half goes to zero, one and a half to two, two and a half to two.
    [(1 / 10, 6, 0), (1 / 20, 11, 0), (3 / 10, 6, 2), (5 / 10, 6, 2), (1 / 6, 4, 0)],
)
def test_half_way_goes_to_the_even_level_however_it_is_rounded(share, levels, index, dtype):
    coupling = torch.tensor([share, -share], dtype=dtype)
    assert quantised_index(coupling, levels=levels).tolist() == [index, -index]
    # A hundredth further it lies on a side, in every dtype.
    near = torch.tensor([share - 0.01, share + 0.01], dtype=dtype)
    below, above = quantised_index(near, levels=levels).tolist()
    assert above == below + 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("levels", [6, 11, 21, 101, 129, 201])
def test_a_level_stays_where_it_is_however_coarse_the_dtype(levels, dtype):
    # The numbers of bfloat16 lie hardly nearer to each other than a hundred levels do: 101/128 is
    # a level of 129, and its rounding reaches half a step further.
    number = torch.arange(-levels, 2 * levels)
    grid = (number.double() / (levels - 1)).to(dtype)
    nearest = (grid.double() * (levels - 1)).round().long()
    assert torch.equal(quantised_index(grid, levels=levels), nearest)
    inside = (number >= 0) & (number < levels)
    assert torch.equal(nearest[inside], number[inside])
    assert torch.equal(quantise(grid[inside], levels=levels), grid[inside])


def test_the_grid_goes_on_below_zero_and_above_one():
    coupling = torch.tensor([-0.26, -0.04, 1.31])
    assert quantised_index(coupling).tolist() == [-3, 0, 13]
    assert quantise(coupling).tolist() == pytest.approx([-0.3, 0.0, 1.3])


def test_the_kind_of_number_stays():
    assert quantise(torch.rand(3, dtype=torch.float32)).dtype == torch.float32
