"""Correlations of ranks, counted by hand."""

import pytest

from torchcaps.study.ranks import spearman


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ((1, 2, 3), (5, 6, 9), 1.0),
        ((1, 2, 3), (9, 6, 5), -1.0),
        # Ranks 1, 2, 3, 4 and 1, 3, 2, 4: 1 - 6 * 2 / (4 * 15).
        ((1, 2, 3, 4), (1, 3, 2, 4), 0.8),
        # Ranks 1.5, 1.5, 3 and 1, 2, 3: 1.5 over the root of 1.5 times 2.
        ((2, 2, 3), (1, 2, 3), 0.8660254037844387),
        ((1, 1, 1), (1, 2, 3), 0.0),
    ],
)
def test_ranks_by_hand(x, y, expected):
    assert spearman(x, y) == pytest.approx(expected)
