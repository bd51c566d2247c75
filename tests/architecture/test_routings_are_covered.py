"""No routing is left out of the tables that hold all of them to their laws."""

import ast
from pathlib import Path

import pytest

from torchcaps import layers, ops

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
TABLES = ("numeric/test_ops.py", "compile/test_compile.py", "contracts/test_routing_contract.py")


def used_names(source: str) -> set[str]:
    """The names that the code reads, by themselves or of a room, as in ops.squash; those in
    comments, in texts and in imports are not read."""
    return {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("routing", [name for name in ops.__all__ if name.endswith("_routing")])
def test_every_routing_stands_in_every_table(routing, table):
    names = used_names((TESTS / table).read_text(encoding="utf-8"))
    assert routing in names, f"{table} has no line for {routing}"


@pytest.mark.parametrize("name", [*layers.ROUTINGS, "conv3d"])
def test_every_routing_has_a_page_and_a_link_to_it(name):
    assert (DOCS / "routing" / f"{name}.md").is_file(), f"docs/routing/{name}.md is missing"
    links = (DOCS / "layers.md").read_text(encoding="utf-8")
    assert f"(routing/{name}.md)" in links, f"docs/layers.md has no link to routing/{name}.md"


def test_a_comment_is_no_line():
    source = """
from torchcaps.ops import dynamic_routing, em_routing
# em_routing is missing.
text = "em_routing"
em_routing = None
ops.em_routing = None
TABLE = [dynamic_routing, ops.uniform_routing]
"""
    assert used_names(source) == {"dynamic_routing", "ops", "uniform_routing"}
