"""No routing is left out of the tables that hold all of them to their laws."""

import re
from pathlib import Path

import pytest

from torchcaps import ops

TESTS = Path(__file__).parents[1]
TABLES = ("numeric/test_ops.py", "compile/test_compile.py", "contracts/test_routing_contract.py")


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("routing", [name for name in ops.__all__ if name.endswith("_routing")])
def test_every_routing_stands_in_every_table(routing, table):
    lines = (TESTS / table).read_text(encoding="utf-8").splitlines()
    used = [line for line in lines if re.search(rf"\b{routing}\b", line)]
    # One line imports it.
    assert len(used) > 1, f"{table} has no line for {routing}"
