"""Every test that is skipped or expected to fail has a row in tests/QUARANTINE.md, and no other."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TABLE = TESTS / "QUARANTINE.md"
CALLS = {"skip", "skipif", "xfail", "importorskip"}


def quarantined(source):
    """Names of the functions in a file that are skipped or expected to fail; "" for the file."""
    found = set()

    def visit(node, name):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = node.name
        if isinstance(node, ast.Attribute) and node.attr in CALLS and _is_pytest(node.value):
            found.add(name)
        for child in ast.iter_child_nodes(node):
            visit(child, name)

    visit(ast.parse(source), "")
    return found


def _is_pytest(node):
    if isinstance(node, ast.Attribute):  # pytest.mark
        node = node.value if node.attr == "mark" else node
    return isinstance(node, ast.Name) and node.id == "pytest"


def in_the_tree():
    return {
        f"{path.relative_to(TESTS)}::{name}"
        for path in TESTS.rglob("*.py")
        for name in quarantined(path.read_text(encoding="utf-8"))
    }


def rows():
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    cells = [
        [each.strip() for each in line.strip("|").split("|")] for line in lines if "::" in line
    ]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_table_and_tree_agree():
    tree, table = in_the_tree(), set(rows())
    assert not tree - table, f"add to {TABLE}: {sorted(tree - table)}"
    assert not table - tree, f"no longer quarantined, take out of {TABLE}: {sorted(table - tree)}"


def test_every_row_has_a_reason_and_a_way_out():
    assert all(len(row) == 2 and all(row) for row in rows().values())


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def test_a(): pytest.skip('no')", {"test_a"}),
        ("@pytest.mark.xfail\ndef test_b(): ...", {"test_b"}),
        ("@pytest.mark.skipif(True, reason='')\ndef test_c(): ...", {"test_c"}),
        ("def test_d(): pytest.importorskip('x')", {"test_d"}),
        ("pytestmark = pytest.mark.skip", {""}),
        (
            "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.xfail)])\n"
            "def test_e(x): ...",
            {"test_e"},
        ),
        ("def test_f(): other.skip()", set()),
    ],
)
def test_what_counts(source, expected):
    assert quarantined(source) == expected
