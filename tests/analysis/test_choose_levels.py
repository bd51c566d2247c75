"""The number of levels by the paper's rule, against brute force."""

import itertools

import pytest

from torchcaps.analysis import choose_levels

GRIDS = (2, 3, 6, 11, 21)


def network(needs, plain=0.95):
    """An accuracy that falls by a point for each layer with fewer levels than it needs."""
    looks = []

    def accuracy(levels):
        looks.append(levels)
        if levels is None:
            return plain
        return plain - 0.01 * sum(k < need for k, need in zip(levels, needs, strict=True))

    return accuracy, looks


@pytest.mark.parametrize("needs", list(itertools.product((2, 3, 6, 21), repeat=2)))
def test_the_fewest_levels_are_found_for_all_layers_and_for_each(needs):
    accuracy, looks = network(needs)
    common = choose_levels(accuracy, layers=2, grids=GRIDS)
    assert common.levels == (max(needs),) * 2
    assert common.holds
    each = choose_levels(accuracy, layers=2, each=True, grids=GRIDS)
    assert each.levels == needs
    # Brute force: of all grids at which accuracy holds, none has fewer levels in all.
    holding = [k for k in itertools.product(GRIDS, repeat=2) if accuracy(k) >= accuracy(None)]
    assert sum(each.levels) == min(map(sum, holding))
    assert looks.count(None) >= 1


def test_a_fall_by_a_tenth_of_a_point_is_none():
    falls = {2: 0.02, 3: 0.0011, 6: 0.0010, 11: 0.0}
    found = choose_levels(
        lambda k: 0.9 if k is None else 0.9 - falls[k[0]], layers=1, grids=tuple(falls)
    )
    assert found.levels == (6,)
    assert found.plain == 0.9
    assert [levels for levels, _ in found.tried] == [(2,), (3,), (6,)]
    stricter = choose_levels(
        lambda k: 0.9 if k is None else 0.9 - falls[k[0]], layers=1, grids=tuple(falls), tolerance=0
    )
    assert stricter.levels == (11,)


def test_rounding_decides_nothing():
    """Shares of 6,000 images, of which six fewer are right with couplings on a grid."""
    for right in range(3_000, 6_000):
        shares = {None: right / 6_000, 2: (right - 6) / 6_000, 3: (right - 7) / 6_000}
        found = choose_levels(
            lambda k, shares=shares: shares[k if k is None else k[0]], layers=1, grids=(2, 3)
        )
        assert found.levels == (2,), right


def test_where_accuracy_never_holds_the_finest_grid_is_taken_and_said():
    found = choose_levels(lambda k: 0.9 if k is None else 0.5, layers=2, each=True, grids=GRIDS)
    assert (found.levels, found.holds) == ((21, 21), False)


def test_nothing_is_looked_at_twice():
    accuracy, looks = network((3, 6, 2))
    choose_levels(accuracy, layers=3, each=True, grids=GRIDS)
    assert len(looks) == len(set(looks))
