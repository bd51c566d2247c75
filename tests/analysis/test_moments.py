"""Moments of a stream are those of all rows, also far from zero."""

import pytest
import torch

from torchcaps.analysis.moments import Moments


@pytest.mark.parametrize("offset", [0.0, 1e8])
@pytest.mark.parametrize("size", [1, 3, 10])
def test_any_batches_on_paper(size, offset):
    rows = torch.tensor([[0.0, 5], [1, 5], [2, 5], [3, 5]], dtype=torch.float64) + offset
    moments = Moments()
    for part in rows.split(size):
        moments.add(part)
    assert moments.count == 4
    assert (moments.mean - offset).tolist() == [1.5, 5]
    assert moments.variance.tolist() == [1.25, 0]
