"""The published claims: complete, in one form, and readable without anything else."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "claims" / "papers").glob("*.json"))
COUNTS = {
    "mitterreiter2023": 85,
    "peer2022": 73,
    "gu2021": 184,
    "tsai2020": 159,
    "renzulli2025": 446,
}
FIELDS = {
    "id": str,
    "paper": str,
    "where": str,
    "kind": str,
    "system": str | None,
    "dataset": str | None,
    "train_set": str | None,
    "test_set": str | None,
    "conditions": dict,
    "metric": str | None,
    "value": int | float | str | None,
    "std": float | None,
    "unit": str | None,
    "note": str | None,
    "statement": str | None,
    "check": str | None,
    "origin": str,
}
KINDS = {"accuracy", "metric", "entropy", "sparsity", "params", "qualitative", "theorem"}
STATED = {"qualitative", "theorem"}
TESTED = {
    "systems",
    "baseline",
    "dataset",
    "protocol",
    "statistic",
    "direction",
    "threshold",
    "n_seeds_min",
}
# What a kind of row has besides.
MORE = {
    "params": {"needs_trained"},
    "qualitative": {"expected"},
    "theorem": {"expected"},
}
# A file, a path, a title in capitals with a number, a number in brackets that can only be a
# section, a paper's initial for its key.
OUTSIDE = re.compile(
    r"\b\w+\.(?:md|json|txt|py|pdf)\b|(?:^|\s)/\w|\b[A-Z]{4,} (?:§|\d+\.\d)"
    r"|\w \(1?\d\.\d+\)|\bas in \d\.\d|\bof \d\.\d$|\b[MPGTR] (?:§|\d)|[Ss]ection \d"
)


def rows_of(path):
    return json.loads(path.read_text(encoding="utf-8"))


def every_row():
    return [row for path in FILES for row in rows_of(path)]


def texts_of(value):
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_of(each)
    elif isinstance(value, str):
        yield value


def test_a_file_for_every_paper():
    assert Counter(row["paper"] for row in every_row()) == COUNTS
    assert {path.stem: len(rows_of(path)) for path in FILES} == COUNTS
    assert len(every_row()) == 947


def test_ids_are_unique():
    assert [name for name, n in Counter(row["id"] for row in every_row()).items() if n > 1] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_one_row_a_line(path):
    lines = (json.dumps(row, ensure_ascii=False) for row in rows_of(path))
    assert path.read_text(encoding="utf-8") == "[\n" + ",\n".join(lines) + "\n]\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rows_have_their_fields(path):
    for row in rows_of(path):
        name, kind = row["id"], row["kind"]
        assert kind in KINDS, name
        assert row["paper"] == path.stem, name
        assert row["origin"] in {"own", "cited"}, name
        wrong = [field for field, form in FIELDS.items() if not isinstance(row[field], form)]
        assert wrong == [], name
        extra = (
            row.keys()
            - FIELDS.keys()
            - {"configuration", "decimals", "default", "identity", "repeats"}
        )
        assert extra == MORE.get(kind, set()), name
        assert row.get("configuration", "unspecified") == "unspecified", name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_row_is_a_number_or_a_statement(path):
    for row in rows_of(path):
        if row["kind"] in STATED:
            assert row["metric"] is row["value"] is None, row["id"]
            assert row["statement"], row["id"]
            assert row["check"], row["id"]
            assert row["expected"] in {None, "holds", "contradicted"}, row["id"]
            assert row["conditions"].keys() >= TESTED, row["id"]
        else:
            assert row["metric"], row["id"]
            assert row["value"] is not None, row["id"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_text_points_outside(path):
    """Numbers that a paper prints in brackets stand behind the name of its table."""
    caption = re.compile(r"Table \d+: .*")
    found = [
        (row["id"], text)
        for row in rows_of(path)
        for text in texts_of(row)
        if OUTSIDE.search(caption.sub("", text))
    ]
    assert found == []
