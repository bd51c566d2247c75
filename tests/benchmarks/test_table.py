"""The performance page is what the records say."""

import json
from pathlib import Path

import table
from table import PAGE, RECORDS, Part, Row, rendered

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_script_writes():
    page = PAGE.read_text(encoding="utf-8")
    assert rendered(page) == page, "run python benchmarks/table.py"
    assert page.partition(table.END)[0].count("\n| ") == len(table.ROWS) + 1


def planted(tmp_path, monkeypatch, **contestants):
    rows = [
        {"case": "c", "environment": "default", "contestant": name.replace("_", "-")} | row
        for name, row in contestants.items()
    ]
    (tmp_path / "r.json").write_text(json.dumps({"rows": rows}))
    monkeypatch.setattr(table, "RECORDS", tmp_path)


def row(ms, mb, *samples):
    return {"ms": ms, "peak_mb": mb, "samples_ms": list(samples)}


def test_a_row_compares_with_the_textbook(tmp_path, monkeypatch):
    planted(
        tmp_path,
        monkeypatch,
        textbook=row(3000.0, 1500.0),
        ours_native=row(150.0, 60.0),
        ours_keeping=row(120.0, 62.0),
        ours_keeping_last=row(100.0, 64.0),
    )
    assert table._of_row(Row("x", "r.json", "c")) == [
        "3 s, 1.50 GB",
        "150 ms, 60 MB",
        "100 ms, 64 MB",
        "20; 30",
    ]


def test_an_opponent_that_was_not_timed_has_no_number(tmp_path, monkeypatch):
    planted(tmp_path, monkeypatch, ours_native=row(150.0, 60.0))
    assert table._of_row(Row("x", "r.json", "c")) == ["–", "150 ms, 60 MB", "", ""]
    planted(
        tmp_path, monkeypatch, textbook={"failure": "out of memory"}, ours_native=row(150.0, 60.0)
    )
    assert table._of_row(Row("x", "r.json", "c"))[0] == "out of memory"


def test_a_part_is_judged_by_its_fastest_step(tmp_path, monkeypatch):
    ours, without = row(500.0, 60.0, 500.0, 100.0, 900.0), row(200.0, 50.0, 250.0, 130.0)
    planted(tmp_path, monkeypatch, **{"ours_native": ours, "ours_native_without_magic": without})
    cells = table._of_part(Part("x", "r.json", "c", "ours-native", "magic"))
    assert cells == ["without: 130 ms, 50 MB", "", "100 ms, 60 MB", "1.3"]


def test_every_record_of_speed_is_named_by_a_page():
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    pages += (ROOT / "claims" / "pages").rglob("*.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert [record.name for record in RECORDS.glob("speed*") if record.name not in text] == []
