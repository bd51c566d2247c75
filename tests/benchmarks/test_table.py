"""The performance page is what the records say."""

from pathlib import Path

import table
from table import PAGE, RECORDS, rendered

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_script_writes():
    page = PAGE.read_text(encoding="utf-8")
    assert rendered(page) == page, "run python benchmarks/table.py"
    assert page.partition(table.END)[0].count("\n| ") == len(table.ROWS) + 1


def test_every_record_of_speed_is_named_by_a_page():
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    pages += (ROOT / "claims" / "pages").rglob("*.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert [record.name for record in RECORDS.glob("speed*") if record.name not in text] == []
