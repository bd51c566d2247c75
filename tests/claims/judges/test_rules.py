"""Tests of rows on a few hand-made seeds.

With five seeds and the deviation s, half the 90 % interval is 0.9534 s and half the 95 % interval
1.2417 s.
"""

import pytest

from torchcaps_claims import find_claim
from torchcaps_claims.judges.rules import Cell, each, joined, minus, most, one_of, rises, slopes
from torchcaps_claims.verdict import StatementVerdict

# Five seeds.
CLAIM = find_claim("gu2021-q-margin-beats-bce")


def around(mean, spread=1.0):
    """Five values of that mean whose deviation is `spread`."""
    unit = spread / 2.5**0.5
    return {seed: mean + unit * step for seed, step in enumerate((-2, -1, 0, 1, 2))}


@pytest.mark.parametrize(
    ("mean", "one_sided", "word"),
    [
        (0.96, True, "holds"),
        (0.95, True, "undecided"),
        (0.96, False, "undecided"),
        (1.25, False, "holds"),
        (-1.23, True, "undecided"),
        (-1.25, True, "fails"),
    ],
)
def test_one_cell(mean, one_sided, word):
    assert each(CLAIM, [Cell(around(mean))], one_sided=one_sided).word == word
    other_way = Cell(around(-mean), "less")
    assert each(CLAIM, [other_way], one_sided=one_sided).word == word


def test_one_of_three_cells():
    """With five seeds half the interval of 1 - 0.1 / 3, one-sided at a third of 5 %, is 1.425 s."""

    def of(*means):
        return one_of(CLAIM, [Cell(around(mean)) for mean in means], corrected=True).word

    assert of(-2, 1.44, -2) == "holds"
    assert of(-2, 1.41, -2) == "undecided"
    # By itself it would hold.
    assert one_of(CLAIM, [Cell(around(m)) for m in (-2, 1.41, -2)]).word == "holds"
    assert of(-1.25, -1.25, -1.25) == "fails"
    assert of(-1.25, -1.23, -1.25) == "undecided"


def test_within_is_two_one_sided_tests():
    assert each(CLAIM, [Cell(around(0.04), "within", 1.0)]).word == "holds"
    assert each(CLAIM, [Cell(around(0.05), "within", 1.0)]).word == "undecided"
    assert each(CLAIM, [Cell(around(2.25), "within", 1.0)]).word == "fails"


def test_four_seeds_of_five_decide_nothing():
    few = dict(list(around(9.0).items())[:4])
    assert each(CLAIM, [Cell(few)]).word == "undecided"


def test_of_many_cells_one_fails_by_the_interval_of_bonferroni():
    # Half the 97.5 % interval is 1.5632 s.
    good, bad = Cell(around(5.0)), Cell(around(-1.5))
    assert each(CLAIM, [good, bad]).word == "fails"
    assert each(CLAIM, [good, bad], corrected=True).word == "undecided"
    found = each(CLAIM, [good, Cell(around(-1.6))], corrected=True)
    assert (found.word, found.ours.mean) == ("fails", pytest.approx(-1.6))
    # What is shown is the interval by which it fails.
    assert found.ours.high == pytest.approx(-1.6 + 1.5632, abs=1e-4)


def test_a_cell_that_something_else_leaves_open_decides_nothing():
    for mean in (5.0, -5.0):
        unclear = Cell(around(mean), open_because="nobody learnt")
        for found in (each(CLAIM, [unclear]), one_of(CLAIM, [unclear])):
            assert (found.word, found.open_because) == ("undecided", "nobody learnt")
    # Another may still contradict the statement.
    found = each(CLAIM, [unclear, Cell(around(-5.0))])
    assert (found.word, found.open_because) == ("fails", None)


def test_what_is_missing_may_not_hold_but_what_is_there_may_fail():
    assert each(CLAIM, [Cell(around(5.0)), Cell({})]) is None
    assert each(CLAIM, [Cell(around(-5.0)), Cell({})]).word == "fails"
    assert each(CLAIM, [Cell({})]) is None


def test_parts_are_joined_by_the_one_that_decides():
    def part(word):
        found = each(CLAIM, [Cell(around(1.0))])
        return StatementVerdict(word, found.ours, "greater", 0.0)

    holds, fails, is_open = part("holds"), part("fails"), part("undecided")
    assert joined(holds, holds).word == "holds"
    assert joined(holds, is_open).word == "undecided"
    assert joined(is_open, fails).word == "fails"
    assert joined(holds, None) is None
    assert joined(None, fails).word == "fails"


def test_arithmetic_of_seeds():
    first, second = {0: 5.0, 1: 6.0, 2: 7.0}, {1: 1.0, 2: 9.0, 3: 0.0}
    assert minus(first, second) == {1: 5.0, 2: -2.0}
    assert most([first, second]) == {1: 6.0, 2: 9.0}
    assert most([first, {}]) == {}
    # Through (1, 1), (2, 3), (3, 2): a half. Seed 7 has no value in the middle.
    places = {1: {0: 1.0, 7: 0.0}, 2: {0: 3.0}, 3: {0: 2.0, 7: 0.0}}
    assert slopes(places) == {0: 0.5}


def test_what_rises_with_its_place():
    # Ranks 1, 2, 3 and 1, 3, 2: 1 - 6 * 2 / (3 * 8).
    places = {1: {0: 1.0, 1: 5.0, 7: 0.0}, 2: {0: 3.0, 1: 4.0}, 3: {0: 2.0, 1: -9.0, 7: 0.0}}
    assert rises(places) == {0: 0.5, 1: -1.0}
