"""Intervals of differences, shares and ratios, worked out by hand."""

import math
import statistics

import pytest

from error_text import text_of
from tables import rows_beside
from torchcaps_claims.intervals import difference_interval, share_bounds, variance_ratio_interval

CASES = rows_beside(__file__, "cases.toml")["intervals"]


def test_the_difference_of_two_groups_by_hand():
    # Means 4 and 1, variances 1 and 4, three values each: the error is sqrt(1/3 + 4/3), and
    # (5/3)² / ((1/3)²/2 + (4/3)²/2) = 2.94 degrees of freedom, of which two are counted.
    found = difference_interval([3.0, 4.0, 5.0], [-1.0, 1.0, 3.0])
    half = 4.302653 * (5 / 3) ** 0.5
    assert found == (3.0, pytest.approx(3 - half), pytest.approx(3 + half), 3)


def test_whole_degrees_of_freedom_are_not_rounded_down():
    """Of two groups that are alike but for a shift there are four, and a bit less by rounding."""
    first = [0.171875, 0.5, 0.0625]
    found = difference_interval(first, [value + 1 for value in first])
    half = 2.776445 * (2 * statistics.variance(first) / 3) ** 0.5
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=1e-6)


def test_groups_without_spread_differ_exactly():
    assert difference_interval([2.0, 2.0], [1.0, 1.0, 1.0]) == (1.0, 1.0, 1.0, 2)
    assert difference_interval([2.0], [1.0, 1.1]).low is None


@pytest.mark.parametrize("scale", [1e-150, 1e-90, 1e90])
def test_welch_knows_no_unit(scale):
    """The square of a small variance is zero, and was divided by."""
    first, second = [1.0, 2.0, 4.0], [0.0, 3.0, 9.0, 10.0]
    usual = difference_interval(first, second)
    found = difference_interval([scale * x for x in first], [scale * x for x in second])
    assert [x / scale for x in found[:3]] == pytest.approx(usual[:3], rel=1e-9)


@pytest.mark.parametrize(("hits", "n", "expected"), CASES["bounds_of_a_share"])
def test_bounds_of_a_share(hits, n, expected):
    assert share_bounds(hits, n) == pytest.approx(expected, abs=5e-5)


def test_bounds_of_no_hits_are_those_of_one_line():
    assert share_bounds(0, 400)[1] == pytest.approx(1 - 0.025 ** (1 / 400), rel=1e-9)
    assert text_of(lambda: share_bounds(3, 2)) == (
        "a share is of 0 to 2 events, but came as 3 of them."
    )


def test_a_ratio_of_variances_of_two_seeds_by_hand():
    # Half of all draws of two seeds are one of them twice, and nothing varies. So a quarter of the
    # ratios is 0, a quarter 4, and the others have nothing below the line.
    pair = [[1.0], [3.0]], [[1.0], [2.0]]
    assert variance_ratio_interval(*pair, confidence=0.4) == (4.0, 4.0, math.inf, 2)
    assert variance_ratio_interval(*pair, confidence=0.6) == (4.0, 0.0, math.inf, 2)


def test_values_of_a_seed_stay_together():
    # Each seed has the same three values, so that every draw has the same variance but for n - 1.
    wide, narrow = [[0.0, 2.0, 4.0]] * 5, [[0.0, 1.0, 2.0]] * 5
    assert variance_ratio_interval(wide, narrow) == (4.0, 4.0, 4.0, 5)
    assert variance_ratio_interval(wide[:3], narrow).n == 3


def test_the_bootstrap_is_the_same_every_time_and_turns_with_its_groups():
    first = [[x] for x in (1.0, 2.5, 3.0, 4.5, 9.0)]
    second = [[x] for x in (2.0, 2.1, 2.6, 2.4, 2.2)]
    found = variance_ratio_interval(first, second)
    assert found == variance_ratio_interval(first, second)
    assert found.low > 1
    assert variance_ratio_interval(second, first).high < 1


def test_nothing_is_a_multiple_of_what_does_not_vary():
    assert variance_ratio_interval([[1.0], [2.0]], [[1.0], [1.0]]) is None
    assert variance_ratio_interval([], [[1.0], [2.0]]) is None
    assert variance_ratio_interval([[1.0, 2.0]], [[1.0, 3.0]]) == (0.25, None, None, 1)
