"""What `make claims` writes of a test: the number that it counted for this very claim."""

from types import SimpleNamespace

import pytest

from claims.record import EVIDENCE, IDS, Outcomes, shown
from torchcaps.study import read_records
from torchcaps_claims.claim import PAPERS

TEST = "tests/claims/test_sizes.py::test_size"


def passed(name, *numbers):
    told = [("ours", number) for number in numbers]
    return SimpleNamespace(
        skipped=False, passed=True, when="call", nodeid=name, user_properties=told
    )


@pytest.mark.parametrize(
    ("reports", "number"),
    [
        # One test for one claim, without cases.
        ([passed(TEST, 4.0)], 4.0),
        ([passed(TEST, 0.0)], 0.0),
        # It asks for more than a number.
        ([passed(TEST)], 1.0),
        # A case for each claim, among them its own; or cases that are no claims.
        ([passed(f"{TEST}[other]", 3.0), passed(f"{TEST}[mine]", 4.0)], 4.0),
        ([passed(f"{TEST}[cpu]"), passed(f"{TEST}[gpu]")], 1.0),
    ],
)
def test_a_claim_gets_the_number_of_its_test(reports, number):
    outcomes = Outcomes()
    for report in reports:
        outcomes.pytest_runtest_logreport(report)
    assert outcomes.of(SimpleNamespace(id="mine"), TEST) == number


@pytest.mark.parametrize(
    ("reports", "sentence"),
    [
        ([], f"{TEST} shows mine, but did not run; is it marked gpu? Nothing was written."),
        (
            [passed(f"{TEST}[{min(IDS)}]", 3.0), passed(f"{TEST}[mein]", 4.0)],
            f"{TEST} has a case for each claim, such as {min(IDS)}, but none for mine; was a case "
            f"renamed? Nothing was written.",
        ),
    ],
)
def test_a_claim_whose_case_did_not_run_gets_no_number(reports, sentence):
    outcomes = Outcomes()
    for report in reports:
        outcomes.pytest_runtest_logreport(report)
    with pytest.raises(SystemExit) as end:
        outcomes.of(SimpleNamespace(id="mine"), TEST)
    assert str(end.value) == sentence


@pytest.mark.parametrize("paper", PAPERS)
def test_the_latest_record_is_of_the_tests_that_show_the_claims_now(paper):
    """Where another test shows a claim, `make claims` has to run it before a page says so."""
    records = read_records(EVIDENCE, study=f"{paper}/tests").values()
    latest = max(records, key=lambda record: record.made)
    now = {claim.id: test for claim, test in shown(paper).items()}
    assert latest.recipe["tests"] == sorted(set(now.values()))
    assert set(latest.claims) == set(now)
