"""In-degree by loops; numbers on paper are in on_paper.toml."""

import pytest
import torch

from torchcaps.analysis import MeasureInDegree
from traces import network, result_of


def test_loops_agree():
    coupling = torch.rand(9, 6, 4, generator=torch.Generator().manual_seed(0)).softmax(-1).double()
    (found,) = result_of(MeasureInDegree(), network({"classes": coupling})).layers
    brute = [
        sum(int(coupling[k, i, j] > 1 / 4) for k in range(9) for i in range(6)) / 9
        for j in range(4)
    ]
    assert found.each.tolist() == pytest.approx(brute, abs=1e-12)
