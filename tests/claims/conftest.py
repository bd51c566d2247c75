"""What tests count of claims, held to the records that are committed."""

from functools import cache

import pytest

from claims.record import EVIDENCE, Outcomes, shown
from torchcaps.study import read_records
from torchcaps_claims import results
from torchcaps_claims.claim import PAPERS


@pytest.fixture(scope="session")
def found():
    """What the records of this repository say of every claim, by its id."""
    return {each.claim.id: each for each in results(EVIDENCE)}


@cache
def recorded():
    """The number of every claim that a test shows, by the test and the claim."""
    numbers = {}
    for paper in PAPERS:
        records = read_records(EVIDENCE, study=f"{paper}/tests").values()
        values = {}
        for record in sorted(records, key=lambda each: each.made):
            values |= record.seeds[0].values
        numbers |= {(test, claim.id): values.get(claim.id) for claim, test in shown(paper).items()}
    return numbers


@pytest.fixture
def ours(request, record_property):
    """Tell what was counted of a claim. The record must say the same, unless it is being made."""

    def tell(number):
        record_property("ours", number)
        if request.config.pluginmanager.has_plugin(Outcomes.__name__):
            return
        test, _, case = request.node.nodeid.partition("[")
        case = case.removesuffix("]")
        for (shown_by, claim), was in recorded().items():
            if shown_by == test and case in ("", claim):
                assert number == was, (
                    f"{claim} is {number} here and {was} in the record: what is counted has "
                    f"changed; see whether it should, and run `make claims`."
                )

    return tell
