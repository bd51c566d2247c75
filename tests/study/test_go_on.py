"""A study in parts: seeds of a record are spared, and theirs and the new ones make one record."""

import dataclasses

import pytest

from error_text import text_of
from made_records import made
from torchcaps.study import evidence as module_of_records
from torchcaps.study import read_records, write_record
from torchcaps.study.evidence import write_records
from torchcaps.study.go_on import going_on, joined
from torchcaps.study.work import work
from torchcaps.train.folder.environment import environment

CLAIM = "peer2022-t1-em-bias"
STATISTIC = "accuracy@sign/train"


@pytest.fixture
def earlier(study):
    """A record of seeds 0, 1, … of the study, from another machine."""

    def make(n, *, statistics=("accuracy", STATISTIC), **fields):
        found = study()
        rows = [dict.fromkeys(statistics, 60.0 + seed) for seed in range(n)]
        record = made(found.systems[0].recipe, rows, claim=CLAIM)
        as_it_was = {"study": found.name, "device": "Linux, 4 cores", "versions": {"torch": "2.0"}}
        return record.model_copy(update=as_it_was | fields)

    return make


@pytest.fixture
def committed(monkeypatch):
    """Runs of code that is a commit, on the images of records made by hand."""
    real = module_of_records.record_of_runs
    of_a_commit = {"dirty": False, "commit": "b1b2c3d4e5f6", "data": {"sign/train": "1"}}

    def record_of_runs(*args, **options):
        return real(*args, **options).model_copy(update=of_a_commit)

    monkeypatch.setattr(module_of_records, "record_of_runs", record_of_runs)


def test_seeds_of_a_record_are_not_run_again(study, earlier):
    all_of_it = study(seeds=(0, 1, 2))
    found = going_on(all_of_it, [earlier(2)])
    assert [cell.recipe.seed for cell in found.cells()] == [2]
    assert found.systems[0].earlier == earlier(2)
    # Of several, the one with the most seeds.
    assert going_on(all_of_it, [earlier(1), earlier(3), earlier(2)]).cells() == ()
    # One that failed is a result, too.
    seeds = (*earlier(1).seeds, earlier(2).seeds[1].model_copy(update={"failed": "NaN"}))
    failed = earlier(2, seeds=seeds)
    assert [cell.recipe.seed for cell in going_on(all_of_it, [failed]).cells()] == [2]


@pytest.mark.parametrize(
    "other",
    [
        {"study": "another"},
        {"dirty": True},
        {"claims": ("peer2022-t1-em-nobias",)},
        {"reduced": "fewer epochs"},
        # Of other images than the study looks at.
        {"statistics": ("accuracy", "accuracy@mnist/test")},
    ],
)
def test_records_of_something_else_spare_nothing(study, earlier, other):
    found = going_on(study(seeds=(0, 1)), [earlier(2, **other)])
    assert found == dataclasses.replace(study(seeds=(0, 1)), in_parts=True)


def test_records_of_another_network_spare_nothing(study, earlier):
    other = study(seeds=(0, 1), learning_rate=0.1)
    assert len(going_on(other, [earlier(2)]).cells()) == 2


def test_both_make_one_record_that_supersedes_the_earlier(
    study, ledger, earlier, committed, tmp_path
):
    first = write_record(earlier(2), tmp_path / "e")
    found = going_on(study(seeds=(0, 1, 2, 3)), [earlier(2)])
    two, _ = found.cells()
    work([two], ledger, root=None)
    # Where a seed is left, only at the end.
    assert write_records(found, ledger, tmp_path / "e") == []
    (path,) = write_records(found, ledger, tmp_path / "e", partly=True)
    ((name, record),) = read_records(tmp_path / "e").items()
    assert (name, record.supersedes) == (path.stem, first.stem)
    assert [each.seed for each in record.seeds] == [0, 1, 2]
    assert record.values(STATISTIC) == [60.0, 61.0, ledger.values(two)[STATISTIC]]
    assert record.commit == "a1b2c3d4e5f6, b1b2c3d4e5f6"
    assert record.device.startswith("Linux, 4 cores, Linux")
    assert record.versions["torch"].startswith("2.0, 2.")
    assert record.recipe == earlier(2).recipe
    # And so on, from that one.
    found = going_on(study(seeds=(0, 1, 2, 3)), [record])
    work(found.cells(), ledger, root=None)
    (last,) = write_records(found, ledger, tmp_path / "e")
    ((name, whole),) = read_records(tmp_path / "e").items()
    assert (name, whole.supersedes) == (last.stem, path.stem)
    assert [each.seed for each in whole.seeds] == [0, 1, 2, 3]
    assert (whole.commit, whole.device) == (record.commit, record.device)
    # Where none is left, the record is what it was.
    found = going_on(study(seeds=(0, 1, 2, 3)), [whole])
    assert write_records(found, ledger, tmp_path / "e", partly=True) == [last]


def test_a_record_of_fewer_claims_is_superseded_and_one_of_more_is_not(
    study, ledger, earlier, committed, tmp_path
):
    """A plan may come to ask more of a network than when it was trained."""
    fewer = write_record(earlier(1, claims=()), tmp_path / "e")
    found = going_on(study(seeds=(0, 1)), [earlier(1, claims=())])
    work(found.cells(), ledger, root=None)
    (new,) = write_records(found, ledger, tmp_path / "e")
    assert read_records(tmp_path / "e")[new.stem].supersedes == fewer.stem
    without = dataclasses.replace(
        found, systems=(dataclasses.replace(found.systems[0], claims=()),)
    )
    assert write_records(without, ledger, tmp_path / "e") == [new]
    assert [*read_records(tmp_path / "e")] == [new.stem]


def test_a_part_that_another_line_is_at_waits_for_it(study, ledger, committed, tmp_path):
    found = going_on(study(seeds=(0, 1)), [])
    first, second = found.cells()
    work([first], ledger, root=None)
    with ledger.claimed(second):
        assert write_records(found, ledger, tmp_path / "e", partly=True) == []
    assert len(write_records(found, ledger, tmp_path / "e", partly=True)) == 1


def test_the_first_part_has_a_record_too(study, ledger, committed, tmp_path):
    found = going_on(study(seeds=(0, 1)), [])
    work(found.cells()[:1], ledger, root=None)
    (path,) = write_records(found, ledger, tmp_path / "e", partly=True)
    assert [each.seed for each in read_records(tmp_path / "e")[path.stem].seeds] == [0]


def test_seeds_that_are_still_to_come_make_no_draft_of_a_part(study, ledger, monkeypatch, tmp_path):
    found = going_on(study(seeds=(0, 1)), [])
    work(found.cells()[:1], ledger, root=None)
    real, commits = module_of_records.record_of_runs, []

    def record_of_runs(*args, measured_by, **options):
        commits.extend(measured_by)
        return real(*args, measured_by=measured_by, **options)

    monkeypatch.setattr(module_of_records, "record_of_runs", record_of_runs)
    write_records(found, ledger, tmp_path / "e", partly=True)
    assert commits == [environment()["commit"]]


def test_changed_code_makes_a_draft_of_both(earlier):
    new = earlier(2, dirty=True, seeds=earlier(2).seeds[1:])
    both = joined(earlier(1), new)
    assert both.is_draft
    assert [each.seed for each in both.seeds] == [0, 1]


def test_a_seed_of_both_keeps_the_new_numbers(earlier):
    new = earlier(1, seeds=(earlier(2).seeds[1].model_copy(update={"seed": 0}),))
    assert joined(earlier(2), new).values("accuracy") == [61.0, 61.0]


def test_other_images_are_a_sentence(earlier):
    new = earlier(3, data={"sign/train": "2"}, seeds=earlier(3).seeds[2:])
    assert text_of(lambda: joined(earlier(2), new)) == (
        f"the record {earlier(2).digest()} was trained and tested on other images (sign/train 1) "
        f"than the runs here (sign/train 2), so they do not make one record; is --root the folder "
        f"it was made with? Else leave --from-records out, and the same line trains the other "
        f"seeds as well."
    )


def test_images_that_only_the_new_seeds_name_are_not_those_of_all(earlier):
    moved = "affnist-style/test"
    numbers = ("accuracy", f"accuracy@{moved}")
    first, new = earlier(2, statistics=numbers), earlier(3, statistics=numbers)
    later = new.model_copy(update={"seeds": new.seeds[2:], "data": {"sign/train": "1", moved: "3"}})
    assert joined(first, later).data == {"sign/train": "1"}
    named = first.model_copy(update={"data": later.data})
    assert joined(named, later).data == later.data
    others = first.model_copy(update={"data": {**later.data, moved: "4"}})
    assert "trained and tested on other images" in text_of(lambda: joined(others, later))


def test_seeds_that_were_measured_on_other_images_make_no_record(study, ledger):
    zero, one = study(seeds=(0, 1)).cells()
    (look,) = zero.looks
    for cell, digest in ((zero, "3"), (one, "4")):
        ledger.write(cell, look, {"accuracy": 50.0}, images=digest)
    name = look.images
    assert module_of_records._images([zero], ledger) == {name: "3"}
    assert text_of(lambda: module_of_records._images([zero, one], ledger)) == (
        f"{one.name} was measured on other images of {name} (digest 4) than the seeds before it "
        f"(3), so they do not make one record; remove "
        f"{ledger.folder / one.name}.values.json, and it is measured again."
    )


def test_a_statistic_that_is_new_stays_out(earlier):
    """Another record may have it for more seeds."""
    few = earlier(2, statistics=("accuracy",))
    new = earlier(3, seeds=earlier(3).seeds[2:])
    assert [each.values for each in joined(few, new).seeds] == [
        {"accuracy": 60.0},
        {"accuracy": 61.0},
        {"accuracy": 62.0},
    ]
    # One that the new ones lack stays with the seeds that have it.
    fewer = earlier(3, statistics=("accuracy",)).seeds[2:]
    assert joined(earlier(2), earlier(3, seeds=fewer)).values(STATISTIC) == [60.0, 61.0]


def test_a_seed_that_failed_joins_though_it_saw_no_test_images(earlier):
    images = {"sign/train": "1", "sign/test": "2"}
    failed = earlier(2).seeds[1].model_copy(update={"values": {}, "failed": "NaN"})
    both = joined(earlier(1, data=images), earlier(2, seeds=(failed,)))
    assert both.data == images
    assert (both.measured, both.failed) == (1, 1)


def test_what_does_not_join_keeps_no_other_system_from_its_record(
    study, ledger, earlier, committed, tmp_path
):
    other = study(seeds=(0,), learning_rate=0.1)
    both = dataclasses.replace(study(), systems=(*study(seeds=(0, 1)).systems, *other.systems))
    found = going_on(both, [earlier(1, data={"sign/train": "2"})])
    work(found.cells(), ledger, root=None)
    assert "other images" in text_of(lambda: write_records(found, ledger, tmp_path / "e"))
    (record,) = read_records(tmp_path / "e").values()
    assert record.recipe["learning_rate"] == 0.1


def test_a_record_of_all_seeds_is_written_again_where_more_is_claimed(
    study, ledger, earlier, tmp_path
):
    there = earlier(2, claims=())
    old = write_record(there, tmp_path / "e")
    found = going_on(study(seeds=(0, 1)), [there])
    (new,) = write_records(found, ledger, tmp_path / "e")
    ((name, record),) = read_records(tmp_path / "e").items()
    assert (name, record.supersedes, record.claims) == (new.stem, old.stem, (CLAIM,))
    assert record.seeds == there.seeds


def test_no_statistic_in_common_is_a_sentence(earlier):
    other = earlier(2, statistics=("sparsity",))
    new = earlier(3, statistics=("accuracy",))
    assert text_of(lambda: joined(other, new)) == (
        f"the record {other.digest()} has sparsity and none of what the runs here have, accuracy "
        f"for one, so they do not make one record; leave --from-records out, and the same line "
        f"trains the other seeds as well."
    )
