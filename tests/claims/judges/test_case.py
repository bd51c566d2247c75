"""Tests of rows on a few hand-made seeds.

With five seeds and the deviation s, half the 90 % interval is 0.9534 s and half the 95 % interval
1.2417 s.
"""

import pytest

from tables import rows_beside
from torchcaps_claims import find_claim
from torchcaps_claims.judges.case import JUDGES, Case, confirming, joined, judge, open_if
from torchcaps_claims.judges.values import Cell, Values, mean_of, most, rises, slopes
from torchcaps_claims.verdict import StatementVerdict

CASES = rows_beside(__file__, "cases.toml")["case"]

# Of five seeds.
CASE = Case(find_claim("gu2021-q-margin-beats-bce"), [])


def around(mean, spread=1.0):
    """Five values of that mean whose deviation is `spread`."""
    unit = spread / 2.5**0.5
    return Values({seed: mean + unit * step for seed, step in enumerate((-2, -1, 0, 1, 2))})


@pytest.mark.parametrize(("mean", "one_sided", "word"), CASES["one_cell"])
def test_one_cell(mean, one_sided, word):
    test = CASE.each if one_sided else CASE.bound
    assert test(around(mean)).word == word
    assert test(around(-mean).less()).word == word
    assert test(around(mean + 7).greater(7)).word == word


def test_one_of_three_cells():
    """With five seeds half the interval of 1 - 0.1 / 3, one-sided at a third of 5 %, is 1.425 s."""

    def of(*means):
        return CASE.one_of(*map(around, means), corrected=True).word

    assert of(-2, 1.44, -2) == "holds"
    assert of(-2, 1.41, -2) == "undecided"
    # By itself it would hold.
    assert CASE.one_of(*map(around, (-2, 1.41, -2))).word == "holds"
    assert of(-1.25, -1.25, -1.25) == "fails"
    assert of(-1.25, -1.23, -1.25) == "undecided"


def test_within_is_two_one_sided_tests():
    assert CASE.each(around(0.04).within(1.0)).word == "holds"
    assert CASE.each(around(0.05).within(1.0)).word == "undecided"
    assert CASE.each(around(2.25).within(1.0)).word == "fails"


def test_four_seeds_of_five_decide_nothing():
    few = Values([*around(9.0).items()][:4])
    assert CASE.each(few).word == "undecided"


def test_of_many_cells_one_fails_by_the_interval_of_bonferroni():
    # Half the 97.5 % interval is 1.5632 s.
    good, bad = around(5.0), around(-1.5)
    assert CASE.each(good, bad).word == "fails"
    assert CASE.each(good, bad, corrected=True).word == "undecided"
    found = CASE.each(good, around(-1.6), corrected=True)
    assert (found.word, found.ours.mean) == ("fails", pytest.approx(-1.6))
    # What is shown is the interval by which it fails.
    assert found.ours.high == pytest.approx(-1.6 + 1.5632, abs=1e-4)


def test_a_cell_that_something_else_leaves_open_decides_nothing():
    for mean in (5.0, -5.0):
        unclear = Cell(around(mean), open_because="nobody learnt")
        for found in (CASE.each(unclear), CASE.one_of(unclear)):
            assert (found.word, found.open_because) == ("undecided", "nobody learnt")
    # Another may still contradict the statement.
    found = CASE.each(unclear, around(-5.0))
    assert (found.word, found.open_because) == ("fails", None)


def test_what_is_missing_may_not_hold_but_what_is_there_may_fail():
    assert CASE.each(around(5.0), Values()) is None
    assert CASE.each(around(-5.0), Values()).word == "fails"
    assert CASE.each(Values()) is None


def test_parts_are_joined_by_the_one_that_decides():
    def part(word):
        found = CASE.each(around(1.0))
        return StatementVerdict(word, found.ours, "greater", 0.0)

    holds, fails, is_open = part("holds"), part("fails"), part("undecided")
    assert joined(holds, holds).word == "holds"
    assert joined(holds, is_open).word == "undecided"
    assert joined(is_open, fails).word == "fails"
    assert joined(holds, None) is None
    assert joined(None, fails).word == "fails"


def test_a_part_is_left_open_only_where_it_comes_to_that_word():
    good, bad = CASE.each(around(5.0)), CASE.each(around(-5.0))
    for part in (good, bad):
        assert open_if(False, part, "why") is part
        found = open_if(True, part, "why")
        assert (found.word, found.open_because, found.ours) == ("undecided", "why", part.ours)
    assert open_if(True, good, "why", word="holds").open_because == "why"
    assert open_if(True, bad, "why", word="holds") is bad
    assert open_if(True, None, "why") is None
    assert (confirming(good), confirming(bad).word) == (good, "undecided")


def test_a_judge_enters_every_statement_that_it_decides(monkeypatch):
    monkeypatch.setattr("torchcaps_claims.judges.case.JUDGES", table := {})
    decide = judge("a", "b", with_itself=True)(lambda case: None)
    assert table == {"a": (decide, True, False), "b": (decide, True, False)}
    assert "a" not in JUDGES


def test_arithmetic_of_seeds():
    first, second = Values({0: 5.0, 1: 6.0, 2: 7.0}), Values({1: 1.0, 2: 9.0, 3: 0.0})
    assert first - second == {1: 5.0, 2: -2.0}
    assert -1 * first == {0: -5.0, 1: -6.0, 2: -7.0}
    assert 0.5 * first == {0: 2.5, 1: 3.0, 2: 3.5}
    # Nothing is so many times 0.
    assert second / Values({1: 2.0, 2: 0.0, 3: 5.0}) == {1: 0.5, 3: 0.0}
    assert first.mean == 6.0
    assert most([first, second]) == {1: 6.0, 2: 9.0}
    assert mean_of([first, second]) == {1: 3.5, 2: 8.0}
    assert most([first, Values()]) == most([]) == {}
    # Through (1, 1), (2, 3), (3, 2): a half. Seed 7 has no value in the middle.
    places = {1: {0: 1.0, 7: 0.0}, 2: {0: 3.0}, 3: {0: 2.0, 7: 0.0}}
    assert slopes(places) == {0: 0.5}


def test_what_rises_with_its_place():
    # Ranks 1, 2, 3 and 1, 3, 2: 1 - 6 * 2 / (3 * 8).
    places = {1: {0: 1.0, 1: 5.0, 7: 0.0}, 2: {0: 3.0, 1: 4.0}, 3: {0: 2.0, 1: -9.0, 7: 0.0}}
    assert rises(places) == {0: 0.5, 1: -1.0}
