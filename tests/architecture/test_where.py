"""The table "Where would I change …?" of docs/design.md names files and names that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## Where would I change")[2].partition("\n## ")[0]
# A capital NAME or PAPER stands for many.
PLACES = re.findall(r"`([a-z_]+/[A-Za-z_/]+\.py)(?::(\w+))?", TABLE)


def test_there_is_a_table() -> None:
    assert len(PLACES) > 20
    assert sum(bool(name) for _, name in PLACES) > 5


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_the_place_is_there(path: str, name: str) -> None:
    shape = re.sub(r"\b[A-Z]{2,}\b", "*", path)
    files = [*(ROOT / "src" / "torchcaps").glob(shape), *ROOT.glob(shape)]
    assert files, f"{path} is not there"
    if name:
        made = re.compile(rf"^(class|def) {name}\b|^{name}\b.*=", re.M)
        assert any(made.search(each.read_text(encoding="utf-8")) for each in files), name


def test_every_folder_has_a_row_that_names_what_it_uses() -> None:
    package = ROOT / "src" / "torchcaps"
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    rows = PAGE.partition("## What each folder is for")[2]
    assert {name for name in folders if f"`{name}/`" not in rows} == set()
    train = rows.partition("| `train/` |")[2].partition("\n")[0]
    assert {"models", "data", "prune", "analysis"} <= set(re.findall(r"\w+", train))
