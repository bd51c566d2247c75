"""In-degree by loops; numbers on paper are in on_paper.toml."""

import pytest
import torch

from torchcaps.analysis import MeasureInDegree, in_degree
from traces import network, result_of


@pytest.mark.parametrize("n", [2, 3, 7, 10])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_even_split_has_no_children(n, dtype):
    """Also where it is rounded up."""
    even = torch.zeros(1, 5, n, dtype=dtype).softmax(-1)
    assert in_degree(even).sum() == in_degree(even.nextafter(torch.ones_like(even))).sum() == 0


def test_loops_agree():
    coupling = torch.rand(9, 6, 4, generator=torch.Generator().manual_seed(0)).softmax(-1).double()
    (found,) = result_of(MeasureInDegree(), network({"classes": coupling})).layers
    brute = [
        sum(int(coupling[k, i, j] > 1 / 4) for k in range(9) for i in range(6)) / 9
        for j in range(4)
    ]
    assert found.each.tolist() == pytest.approx(brute, abs=1e-12)
