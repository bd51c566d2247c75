"""Verdicts by hand: three values a, b, c with deviation s have the half width 2.4841 s."""

import dataclasses

import pytest

from error_text import text_of
from made_records import made
from tables import rows_beside, worked_out
from torchcaps.study import write_record
from torchcaps.study.intervals import mean_interval
from torchcaps_claims import find_claim, plan_of, results, verdict
from torchcaps_claims.verdict import judge, judge_count, tolerance_of, word_of

CASES = rows_beside(__file__, "cases.toml")["verdict"]

AFFNIST = find_claim("gu2021-t1-capsnet-affnist")  # 79 %, no deviation printed


def of(value, *, std=None, kind="accuracy", metric="test accuracy", unit="%"):
    return dataclasses.replace(AFFNIST, value=value, std=std, kind=kind, metric=metric, unit=unit)


@pytest.mark.parametrize(("claim", "tolerance"), CASES["tolerances"])
def test_tolerances(claim, tolerance):
    claim = worked_out(claim, globals())
    assert tolerance_of(claim) == pytest.approx(tolerance)


@pytest.mark.parametrize(
    ("name", "tolerance"), CASES["what_nearly_all_of_a_bound_would_let_through"]
)
def test_what_nearly_all_of_a_bound_would_let_through(name, tolerance):
    assert tolerance_of(find_claim(name)) == pytest.approx(tolerance)


def test_a_test_may_leave_a_claim_open():
    claim = find_claim("tsai2020-q-cost-grows")
    assert verdict.judge_test(claim, "tests/a.py::b").text() == "holds: shown by tests/a.py::b"
    left = verdict.judge_test(claim, "tests/a.py::b", found=0.0)
    assert left.text() == "undecided: left open by tests/a.py::b"


@pytest.mark.parametrize("expected", ["holds", "contradicted", None])
def test_what_a_test_finds_decides_and_not_what_somebody_expected(expected):
    claim = dataclasses.replace(find_claim("peer2022-s42-em-bias"), expected=expected)
    words = [verdict.judge_test(claim, "tests/a.py::b", found=x).word for x in (1.0, 0.0, -1.0)]
    assert words == ["holds", "undecided", "fails"]


@pytest.mark.parametrize(("values", "word"), CASES["numbers"])
def test_numbers(values, word):
    assert judge(AFFNIST, values).word == word


@pytest.mark.parametrize(("claim", "above"), CASES["which_side_is_the_better_one"])
def test_which_side_is_the_better_one(claim, above):
    claim = worked_out(claim, globals())
    other = {"worse": "better", "better": "worse"}[above]
    assert judge(claim, [2 * claim.value] * 3).word == above
    assert judge(claim, [claim.value / 2] * 3).word == other


def test_two_standard_errors_let_a_number_pass_that_a_deviation_of_the_paper_does_not():
    """Printed 99.57: 0.11 points of tolerance. Ours lie 0.15 below it."""
    assert judge(of(99.57, std=0.48), [99.41, 99.42, 99.43]).word == "worse"
    assert judge(of(99.57), [99.27, 99.42, 99.57]).word == "reproduced"  # two errors of 0.087
    assert judge(of(99.57), [99.32, 99.42, 99.52]).word == "undecided"  # two of 0.058


def test_six_seeds_on_one_side_decide_what_a_skew_interval_does_not():
    """The t-interval reaches beyond 100 %."""
    skew = [98.64, 98.6, 98.0, 97.0, 60.0, 98.5]
    assert judge(of(99.7), skew).ours.high > 100
    assert judge(of(99.7), skew).word == "worse"
    assert judge(of(99.7), skew[1:]).word == "undecided"
    assert judge(of(99.7), [*skew, 99.7]).word == "undecided"


@pytest.mark.parametrize(("accuracies", "is_so"), CASES["what_is_as_right_as_printed"])
def test_what_is_as_right_as_printed(accuracies, is_so):
    assert verdict.is_as_right(accuracies, 99.2) == is_so


def test_another_tolerance_changes_the_verdict(monkeypatch):
    values = [84.2, 84.3, 84.4]
    assert judge(AFFNIST, values).word == "undecided"
    monkeypatch.setattr(verdict, "TOLERANCE_OF_ERRORS", 0.3)
    assert judge(AFFNIST, values).word == "reproduced"


def test_another_tolerance_changes_no_byte_of_a_record(tmp_path, monkeypatch):
    """Neither of the file that is there nor of the one that is written of the same seeds."""
    claim = find_claim("peer2022-t1-em-bias")  # 99.81 %
    (job,) = plan_of(claim).jobs

    def written_and_judged():
        seeds = [{"accuracy@sign/train": value} for value in (99.3, 99.35, 99.4)]
        path = write_record(made(job.recipe(), seeds, claim=claim.id), tmp_path)
        found = {each.claim.id: each.status for each in results(tmp_path, paper="peer2022")}
        assert [*tmp_path.rglob("*.json")] == [path]
        return path.read_bytes(), found[claim.id]

    record, word = written_and_judged()
    monkeypatch.setattr(verdict, "TOLERANCE_OF_ERRORS", 5.0)
    assert (word, *written_and_judged()) == ("on our default", record, "undecided")


def test_a_verdict_in_words():
    assert judge(AFFNIST, [78.9, 79.0, 79.1]).text() == (
        "reproduced: printed 79 %, ours 79 [78.75, 79.25] over 3 seeds, tolerance 5.25"
    )
    assert judge(AFFNIST, [79.0]).text() == (
        "undecided: printed 79 %, ours 79 over 1 seed, tolerance 5.25"
    )


@pytest.mark.parametrize("name", ["gu2021-q-margin-beats-bce", "tsai2020-t4-row1"])
def test_what_is_no_number_is_refused(name):
    assert text_of(lambda: judge(find_claim(name), [1.0, 1.0, 1.0])) == (
        f"{name} is no number that could be reproduced; a statement is judged by its interval, "
        f"a shape by a test."
    )


@pytest.mark.parametrize(("values", "side", "threshold", "word"), CASES["statements"])
def test_statements(values, side, threshold, word):
    assert word_of(mean_interval(values), side, threshold, least=3) == word


def test_too_few_seeds_decide_no_statement():
    ours = mean_interval([1.0, 1.1, 1.2, 1.1])
    assert word_of(ours, "greater", 0.0, least=5) == "undecided"
    assert word_of(ours, "greater", 0.0, least=4) == "holds"


@pytest.mark.parametrize(("steps", "word"), CASES["a_number_that_is_printed_as_a_bound"])
def test_a_number_that_is_printed_as_a_bound(steps, word):
    assert judge(find_claim("peer2022-text-em-nobias-start"), steps).word == word


@pytest.mark.parametrize(("name", "count", "word"), CASES["a_count_must_meet_every_printed_digit"])
def test_a_count_must_meet_every_printed_digit(name, count, word):
    assert judge_count(find_claim(name), count).word == word
