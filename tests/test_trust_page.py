"""docs/trust.md names tests that there are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]*)(?:::(\w+))?`", PAGE)))


def test_the_page_names_many():
    assert len(NAMED) > 15


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_it_is_there(path, name):
    file = ROOT / path
    assert file.exists()
    if name:
        assert f"def {name}(" in file.read_text(encoding="utf-8")


def test_others_link_to_it():
    assert "docs/trust.md" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "trust.md" in (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
