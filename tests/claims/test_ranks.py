"""Correlations of ranks, counted by hand."""

import pytest

from tables import rows_beside
from torchcaps_claims.ranks import rank_test, spearman

CASES = rows_beside(__file__, "cases.toml")["ranks"]


@pytest.mark.parametrize(("x", "y", "expected"), CASES["ranks_by_hand"])
def test_ranks_by_hand(x, y, expected):
    assert spearman(x, y) == pytest.approx(expected)


def test_the_interval_of_a_correlation_on_paper():
    # ρ = 0.8 of four: artanh 1.098612, 1.959964 √((1 + 0.32) / 1) = 2.251828.
    ours, _ = rank_test((1, 2, 3, 4), (1, 3, 2, 4))
    assert (ours.mean, ours.n) == (0.8, 4)
    assert (ours.low, ours.high) == pytest.approx((-0.818817, 0.997544), abs=2e-6)
    assert rank_test((1, 2, 3, 4), (1, 2, 3, 4)).ours[:3] == (1.0, 1.0, 1.0)


def test_chance_is_the_share_of_orders_that_are_as_high():
    # Of the 24 orders of four one rises throughout, three more swap two neighbours.
    draws = {"abs": 3 * (0.25 / 10_000) ** 0.5}
    four = (1, 2, 3, 4)
    assert rank_test(four, (2, 5, 6, 9)).chance == pytest.approx(1 / 24, **draws)
    assert rank_test(four, (5, 2, 6, 9)).chance == pytest.approx(4 / 24, **draws)
    assert rank_test(four, (9, 6, 5, 2)).chance == 1
    # Equal numbers say nothing.
    assert rank_test(four, (1, 1, 1, 1)).chance == 1
    assert rank_test(four, (2, 5, 6, 9)) == rank_test(four, (2, 5, 6, 9))
