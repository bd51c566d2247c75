"""In-degree on paper, at its extremes, and by loops."""

import pytest
import torch

from torchcaps.analysis import MeasureInDegree, in_degree
from traces import even, network


def measured(coupling, **options):
    measurement = MeasureInDegree(**options)
    measurement.add(network({"classes": coupling}))
    (row,) = measurement.result().layers
    return row


def test_the_threshold_is_a_share_of_an_even_split():
    coupling = torch.tensor([[[0.6, 0.4], [0.9, 0.1], [0.5, 0.5]]])
    assert in_degree(coupling).tolist() == [[2, 0]]
    assert in_degree(coupling, threshold=0.5).tolist() == [[3, 2]]


@pytest.mark.parametrize("n", [2, 3, 7, 10])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_even_split_has_no_children(n, dtype):
    assert in_degree(torch.zeros(1, 5, n, dtype=dtype).softmax(-1)).sum() == 0


def test_loops_agree():
    coupling = torch.rand(9, 6, 4, generator=torch.Generator().manual_seed(0)).softmax(-1).double()
    found = measured(coupling)
    brute = [
        sum(int(coupling[k, i, j] > 1 / 4) for k in range(9) for i in range(6)) / 9
        for j in range(4)
    ]
    assert found.each.tolist() == pytest.approx(brute, abs=1e-12)
    assert measured(even(2, 3, 3)).mean == 0
