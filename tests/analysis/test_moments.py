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


def test_parts_of_unequal_sizes():
    rows = torch.rand(11, 2, 3, dtype=torch.float64)
    moments = Moments()
    for part in (rows[:4], rows[4:], rows[:0]):
        moments.add(part)
    torch.testing.assert_close(moments.mean, rows.mean(0), rtol=0, atol=1e-15)
    torch.testing.assert_close(moments.std, rows.std(0, correction=0), rtol=0, atol=1e-15)
