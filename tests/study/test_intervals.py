"""Intervals of a mean, against printed tables of Student's t distribution."""

import math

import pytest

from error_text import text_of
from torchcaps.study.intervals import mean_interval, t_quantile

# As printed in statistical tables, three decimals.
PRINTED = {
    (0.90, 1): 3.078,
    (0.95, 1): 6.314,
    (0.975, 1): 12.706,
    (0.995, 1): 63.657,
    (0.975, 2): 4.303,
    (0.975, 3): 3.182,
    (0.975, 4): 2.776,
    (0.995, 4): 4.604,
    (0.9995, 4): 8.610,
    (0.975, 9): 2.262,
    (0.95, 10): 1.812,
    (0.975, 29): 2.045,
    (0.995, 30): 2.750,
    (0.975, 120): 1.980,
}


@pytest.mark.parametrize(("probability", "freedom"), PRINTED)
def test_quantiles_of_printed_tables(probability, freedom):
    assert round(t_quantile(probability, freedom), 3) == PRINTED[probability, freedom]


@pytest.mark.parametrize("probability", [0.6, 0.9, 0.975, 0.9999])
def test_closed_forms_of_one_and_two_degrees(probability):
    p = 2 * probability - 1
    assert t_quantile(probability, 1) == pytest.approx(math.tan(math.pi * p / 2), rel=1e-12)
    two = p * math.sqrt(2 / (1 - p * p))
    assert t_quantile(probability, 2) == pytest.approx(two, rel=1e-9)


def test_the_distribution_is_symmetric_and_nears_the_normal_one():
    assert t_quantile(0.025, 7) == -t_quantile(0.975, 7)
    assert t_quantile(0.5, 7) == pytest.approx(0, abs=1e-15)
    assert t_quantile(0.975, 100_000) == pytest.approx(1.959964, abs=1e-4)


def test_an_interval_on_paper():
    # Mean 2, deviation 1, half width 4.3027 / sqrt(3) = 2.4841.
    found = mean_interval([1.0, 2.0, 3.0])
    assert (found.mean, found.n) == (2.0, 3)
    assert (found.low, found.high) == pytest.approx((-0.48414, 4.48414), abs=1e-5)


def test_equal_values_have_a_point_and_one_value_has_no_ends():
    assert mean_interval([5.0, 5.0, 5.0])[:3] == (5.0, 5.0, 5.0)
    assert mean_interval([5.0])[1:] == (None, None, 1)


def test_more_confidence_is_wider():
    narrow, wide = (mean_interval([1.0, 2.0, 3.0], confidence=c) for c in (0.9, 0.99))
    assert narrow.high < wide.high


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_no_interval_without_finite_values(values):
    said = text_of(lambda: mean_interval(values))
    assert said.startswith("an interval needs finite values, one a seed, but came ")


@pytest.mark.parametrize(("probability", "freedom"), [(0.0, 3), (1.0, 3), (0.9, 0)])
def test_no_quantile_outside_the_distribution(probability, freedom):
    said = text_of(lambda: t_quantile(probability, freedom))
    assert said.startswith(
        f"probability must be a number above 0 and below 1, but came as {probability}"
        if freedom
        else "freedom must be a whole number of degrees of freedom from 1, but came as 0"
    )
