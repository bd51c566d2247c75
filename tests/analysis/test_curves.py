"""Training curves on paper."""

import pytest

from torchcaps.analysis import area, jitter, onset, time_to


def test_jitter_is_the_mean_bend():
    assert jitter([0.1, 0.2, 0.3, 0.4]) == pytest.approx(0)
    # |0.5 − 1.6 + 0.6| and |0.8 − 1.2 + 0.9|
    assert jitter([0.5, 0.8, 0.6, 0.9]) == pytest.approx(0.5)
    assert jitter([0.5, 0.8]) is jitter([]) is None
    assert jitter([0.5] * 4) == 0


def test_onset_is_ten_points_above_chance():
    steps, accuracy = [100, 200, 300], [0.1, 0.2, 0.21]
    assert onset(steps, accuracy, chance=0.1) == 300
    assert onset(steps, accuracy, chance=0.5) is None


def test_time_to_a_level():
    assert time_to(0.6, [1, 5, 9], [0.2, 0.6, 0.9]) == 5
    assert time_to(0.95, [1, 5, 9], [0.2, 0.6, 0.9]) is None


def test_area_is_the_mean_over_steps():
    assert area([0, 1, 3], [0.0, 1.0, 1.0]) == pytest.approx((0.5 + 2) / 3)
    assert area([7], [0.4]) == 0.4
    # Points on a straight line between others change nothing.
    assert area([0, 2, 4], [0.2, 0.4, 0.6]) == pytest.approx(area([0, 4], [0.2, 0.6]))
