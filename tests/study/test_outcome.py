"""What is said at the end of a study."""

from torchcaps.study.evidence import write_records
from torchcaps.study.system import Study, Waiting
from torchcaps.study.work import work
from torchcaps_claims import Outcome, outcome_of


def test_claims_and_records_are_told(study, ledger, tmp_path):
    found = study()
    work(found.cells(), ledger)
    outcome = outcome_of(found, write_records(found, ledger, tmp_path))
    lines = outcome.text().splitlines()
    # One seed of one epoch decides nothing.
    assert lines[0].startswith("peer2022-t1-em-bias  undecided: printed 99.81 %, ours ")
    assert lines[1] == "1 of 1 systems have a record"
    numbers = outcome.numbers()
    assert [each["id"] for each in numbers["claims"]] == ["peer2022-t1-em-bias"]
    assert numbers["study"] == "peer2022/table1"
    assert len(numbers["records"]) == 1


def test_what_cannot_be_run_is_told(study):
    systems = study().systems
    lacking = Study("a/b", systems, (Waiting("x", ("prune",)), Waiting("y", ("prune", "data:z"))))
    text = Outcome(lacking, {}, ()).text()
    assert text.splitlines()[-1] == "2 rows cannot be run yet; they need data:z, prune"
    alone = Outcome(Study("a/b", systems, (Waiting("x", ("prune",)),)), {}, ()).text()
    assert alone.splitlines()[-1] == "1 row cannot be run yet; it needs prune"
