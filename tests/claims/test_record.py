"""What `make claims` writes of a test: the number that it counted for this very claim."""

from types import SimpleNamespace

import pytest

from claims.record import Outcomes

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
