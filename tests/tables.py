"""Cases that are data: the tables of a TOML file, each a case with a sentence for its name."""

import tomllib
from pathlib import Path
from typing import Any

import pytest


def beside(file: str, name: str) -> dict[str, Any]:
    """The tables of a file in the folder of a test."""
    return tomllib.loads(Path(file).with_name(name).read_text(encoding="utf-8"))


def cases_of(path: Path) -> list[Any]:
    """The tables of a file, for parametrize."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return [pytest.param(table, id=name) for name, table in tables.items()]


def worked_out(value: Any, names: dict[str, Any]) -> Any:
    """A value of a table with its formulas, which are text, worked out by Python."""
    if isinstance(value, str):
        return eval(f"({value})", dict(names))
    if isinstance(value, list):
        return [worked_out(each, names) for each in value]
    if isinstance(value, dict):
        return {name: worked_out(each, names) for name, each in value.items()}
    return value
