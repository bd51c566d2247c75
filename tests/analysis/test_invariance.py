"""Invariance on paper: unchanged, scaled, opposite, silent and constant capsules."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cosine_similarity

from torchcaps.analysis import MeasureInvariance, measure
from traces import even, network


def look(pixels):
    """A network whose images are the lengths of its primary capsules."""
    trace = network({"classes": even(len(pixels), pixels.shape[1], 2)}, {"primary": pixels})
    return SimpleNamespace(scores=torch.zeros(len(pixels), 2), trace=trace)


def measured(lengths, change, *, batch=3):
    measurement = MeasureInvariance(look, {"change": change})
    (found,) = measure(look, torch.as_tensor(lengths).double().split(batch), [measurement])
    return found.layers[0]


LENGTHS = torch.rand(9, 4, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_the_same_lengths_up_to_a_factor(factor):
    row = measured(LENGTHS, lambda pixels: pixels * factor)
    assert (row.corr, row.pearson) == (pytest.approx(1), pytest.approx(1))
    assert (row.change, row.name, row.silent, row.constant) == ("change", "primary", 0, 0)


def test_on_paper():
    # (1, 0) against (0, 1): nothing in common. (2, 1) against (1, 2): 4 / 5, and opposite.
    row = measured([[1.0], [0.0]], lambda pixels: 1 - pixels, batch=2)
    assert (row.corr, row.pearson) == (0, pytest.approx(-1))
    row = measured([[2.0], [1.0]], lambda pixels: 3 - pixels)
    assert (row.corr, row.pearson) == (pytest.approx(0.8), pytest.approx(-1))


def test_silent_and_constant_capsules_are_counted():
    lengths = torch.tensor([[0.0, 0.1, 0.2], [0.0, 0.1, 0.4], [0.0, 0.1, 0.3]])
    row = measured(lengths, lambda pixels: pixels, batch=1)
    assert (row.silent, row.constant) == (1, 1)
    assert (row.corr, row.pearson) == (pytest.approx(1), pytest.approx(1))
    row = measured(torch.zeros(3, 2), lambda pixels: pixels)
    assert (row.corr, row.pearson, row.silent) == (None, None, 2)


def test_rounding_is_no_variation():
    noise = 1e-7 * torch.randn(9, 1, generator=torch.Generator().manual_seed(1)).double()
    lengths = torch.cat([LENGTHS[:, :1], 0.5 + noise], 1)
    # The same lengths for one capsule; of the other what rounding left, the other way round.
    row = measured(lengths, lambda pixels: torch.stack([pixels[:, 0], 1 - pixels[:, 1]], 1))
    assert (row.pearson, row.constant) == (pytest.approx(1), 1)


def test_pytorch_agrees():
    row = measured(LENGTHS, lambda pixels: (pixels - 0.4).abs())
    after = (LENGTHS - 0.4).abs()
    corr = cosine_similarity(LENGTHS, after, dim=0).mean().item()
    assert row.corr == pytest.approx(corr, abs=1e-9)
    pairs = [torch.corrcoef(pair)[0, 1] for pair in torch.stack([LENGTHS.T, after.T], 1)]
    assert row.pearson == pytest.approx(sum(pairs).item() / 4, abs=1e-9)


def test_rounding_is_told_by_the_size_of_each_image():
    noise = torch.randn(9, 1, generator=torch.Generator().manual_seed(2)).double()
    for size in (1e-3, 1e3):
        rounded = measured(
            LENGTHS[:, :1], lambda pixels, s=size: s * (1 + 1e-7 * noise[: len(pixels)])
        )
        varied = measured(LENGTHS[:, :1], lambda pixels, s=size: s * (1 + 1e-3 * pixels))
        assert (rounded.constant, rounded.pearson) == (1, None)
        assert (varied.constant, varied.pearson) == (0, pytest.approx(1))
