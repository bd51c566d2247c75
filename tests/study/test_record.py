"""Records of runs: written once, never edited, drafts kept apart."""

import hashlib
import json
import os
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from error_text import text_of
from torchcaps.study.record import (
    Record,
    Seed,
    make_record,
    read_record,
    read_records,
    write_record,
)


def record(**changes):
    fields = {
        "study": "peer2022/table1",
        "claims": ("peer2022-t1-rba-bias",),
        "recipe": {"model": "peer_sign_dynamic", "data": "sign", "epochs": 50, "seed": 0},
        "recipe_hash": "0123456789ab",
        "data": {"sign/train": "ba9876543210"},
        "seeds": (
            Seed(
                seed=0,
                values={"accuracy": 99.5},
                per_epoch=({"epoch": 1, "accuracy": 80.0}, {"epoch": 2, "accuracy": 99.5}),
                wall_seconds=1.5,
            ),
            Seed(seed=1, values={"accuracy": 99.7}, wall_seconds=2.0),
        ),
        "commit": "a1b2c3d4e5f6",
        "dirty": False,
        "versions": {"torch": "2.8.0", "torchcaps": "0.1.0"},
        "device": "cpu, 2 cores",
        "command": "torchcaps train --protocol peer",
        "made": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        **changes,
    }
    return Record(**fields)


def test_what_is_written_is_read(tmp_path):
    path = write_record(record(), tmp_path)
    assert path == tmp_path / "peer2022" / "table1" / f"{record().digest()}.json"
    assert read_record(path) == record()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_file_holds_every_value():
    written = json.loads(record().text())
    assert written["schema_version"] == 1
    assert written["seeds"][0]["per_epoch"][1] == {"epoch": 2, "accuracy": 99.5}
    assert record().values("accuracy") == [99.5, 99.7]
    assert record().wall_seconds == 3.5


def test_the_hash_knows_every_field_and_no_order():
    turned = dict(reversed(record().recipe.items()))
    assert record(recipe=turned).digest() == record().digest()
    changes = [
        {"dirty": True},
        {"commit": None},
        {"device": "cuda"},
        {"reduced": "5 epochs"},
        {"departures": ("a",)},
        {"data": {"sign/train": "0"}},
        {"seeds": record().seeds[:1]},
    ]
    digests = {record(**change).digest() for change in changes}
    assert len(digests | {record().digest()}) == len(changes) + 1


def test_the_same_record_again_changes_nothing(tmp_path):
    path = write_record(record(), tmp_path)
    before = path.stat().st_mtime_ns
    assert write_record(record(), tmp_path) == path
    assert path.stat().st_mtime_ns == before


def test_an_edited_file_gives_itself_away(tmp_path):
    path = write_record(record(), tmp_path)
    path.write_text(path.read_text().replace("99.7", "99.9"))
    said = text_of(lambda: read_record(path))
    assert said.startswith(f"{path} was edited: its content has the hash ")
    assert said.endswith(
        "Records are never edited; restore the file, and write a new record that supersedes it."
    )
    # Nor is it written over.
    assert text_of(lambda: write_record(record(), tmp_path)) == said


def test_a_record_cannot_be_changed():
    with pytest.raises(ValidationError):
        record().dirty = True


def test_a_new_record_supersedes_and_the_old_one_stays(tmp_path):
    old = write_record(record(), tmp_path)
    again = record(supersedes=old.stem, device="cpu, 4 cores")
    new = write_record(again, tmp_path)
    assert old.is_file()
    assert read_records(tmp_path) == {new.stem: again}


def test_a_link_leads_to_a_record_of_the_same_claims(tmp_path):
    said = text_of(lambda: write_record(record(supersedes="0" * 12), tmp_path))
    assert said == (
        f"the record supersedes 000000000000, but {tmp_path / 'peer2022/table1'} holds no such "
        f"record; write it beside the one that it replaces."
    )
    old = write_record(record(), tmp_path)
    other = record(supersedes=old.stem, claims=("peer2022-t1-em-bias",))
    assert text_of(lambda: write_record(other, tmp_path)) == (
        f"the record supersedes {old.stem}, which judges peer2022-t1-rba-bias as well; a record is "
        f"replaced by one of the same claims, or of more."
    )
    more = record(supersedes=old.stem, claims=("peer2022-t1-em-bias", "peer2022-t1-rba-bias"))
    assert [*read_records(tmp_path)] == [old.stem]
    new = write_record(more, tmp_path)
    assert [*read_records(tmp_path)] == [new.stem]


@pytest.mark.parametrize("change", [{"dirty": True}, {"commit": None}])
def test_drafts_are_kept_apart(tmp_path, change):
    clean = write_record(record(), tmp_path)
    draft = record(**change)
    assert draft.is_draft
    assert not record().is_draft
    write_record(draft, tmp_path)
    assert list(read_records(tmp_path)) == [clean.stem]
    assert set(read_records(tmp_path, drafts=True)) == {clean.stem, draft.digest()}


def test_a_draft_takes_no_result_away(tmp_path):
    clean = write_record(record(), tmp_path)
    draft = write_record(record(dirty=True, supersedes=clean.stem), tmp_path)
    assert list(read_records(tmp_path)) == [clean.stem]
    later = write_record(record(supersedes=draft.stem), tmp_path)
    assert set(read_records(tmp_path, drafts=True)) == {clean.stem, later.stem}


def test_studies_are_folders(tmp_path):
    write_record(record(), tmp_path)
    other = write_record(record(study="gu2021/table4"), tmp_path)
    assert list(read_records(tmp_path, study="gu2021/table4")) == [other.stem]
    assert len(read_records(tmp_path)) == 2
    assert read_records(tmp_path / "nothing") == {}
    assert text_of(lambda: read_records(other, study="gu2021/table4")) == (
        f"{other} is a file, where the folder of all records belongs; name that folder: "
        f"--evidence FOLDER on the command line."
    )


def test_a_failed_seed_stays_in_the_record():
    seeds = (*record().seeds, Seed(seed=2, failed="loss was NaN in epoch 3", wall_seconds=0.5))
    assert record(seeds=seeds).values("accuracy") == [99.5, 99.7]
    assert (record(seeds=seeds).measured, record(seeds=seeds).failed) == (2, 1)
    assert "loss was NaN" in record(seeds=seeds).text()


def test_an_unknown_statistic():
    assert text_of(lambda: record().values("dyr")) == (
        "the record of peer2022/table1 has no 'dyr'; it has accuracy."
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"study": "Peer 2022"}, "study must be lower-case words"),
        ({"study": "../peer"}, "study must be lower-case words"),
        ({"made": datetime(2026, 1, 2)}, "made must name its time zone"),
        ({"recipe": {"model": ["capsnet"]}}, r"recipe must name its model, not \['capsnet'\]"),
        ({"recipe": {"options": [1]}}, r"options of a recipe must be a table, not \[1\]"),
        ({"seeds": ()}, "at least 1 item"),
        ({"seeds": 2 * (Seed(seed=0, values={"a": 1.0}, wall_seconds=0),)}, "every seed may be"),
        ({"nothing": 1}, "not permitted"),
    ],
)
def test_what_does_not_hold_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        record(**changes)


def test_faults_are_one_sentence():
    fields = {**record().model_dump(), "study": "No", "data": {}}
    assert text_of(lambda: make_record(**fields)) == (
        "the record does not hold: study: study must be lower-case words with slashes between, "
        "gu2021/table4, not 'No'; data: dictionary should have at least 1 item after validation, "
        "not 0."
    )


@pytest.mark.parametrize(
    "fields",
    [{}, {"values": {"a": 1.0}, "failed": "no"}, {"values": {"a": float("nan")}}],
)
def test_a_seed_has_values_or_a_reason(fields):
    with pytest.raises(ValidationError):
        Seed(seed=0, wall_seconds=1, **fields)


def test_records_of_another_schema_are_told(tmp_path):
    path = write_record(record(), tmp_path)
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    assert text_of(lambda: read_record(path)) == (
        f"{path} is a record of schema 2, and this torchcaps reads schema 1; read it with the "
        f"version of torchcaps that its `versions` name."
    )


def test_a_name_as_long_as_the_file_is_cut(tmp_path):
    text = record().text().replace('"study":', '"study' + "[" * 500 + '":')
    path = tmp_path / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    path.write_text(text)
    sentence = text_of(lambda: read_record(path))
    assert "is no record of schema 1 (study: field required; study[[[" in sentence
    assert "[" * 41 not in sentence


def test_files_that_are_no_records(tmp_path):
    path = tmp_path / "a.json"
    assert text_of(lambda: read_record(path)) == f"there is no record at {path}."
    path.write_text("{")
    assert "cannot be read as JSON" in text_of(lambda: read_record(path))
    path.write_text("[]")
    assert "a record of schema None" in text_of(lambda: read_record(path))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xff\xfe", "it is not text in UTF-8"),
        (b"[" * 10_000, "its brackets are nested too deeply"),
        (b'{"schema_version": ' + b"9" * 5000 + b"}", "it holds a number of thousands of digits"),
    ],
)
def test_bytes_that_no_record_has(tmp_path, content, why):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert text_of(lambda: read_record(path)) == (
        f"{path} is no record: it cannot be read as JSON ({why}); was its copy cut short?"
    )
    path.write_text(json.dumps({"schema_version": "x" * 9000}))
    assert len(text_of(lambda: read_record(path))) < 600


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no room")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="no room"):
        write_record(record(), tmp_path)
    assert [file for _, _, files in os.walk(tmp_path) for file in files] == []
