"""Cases that are data: the tables of a TOML file, each a case with a sentence for its name."""

import tomllib
from pathlib import Path
from typing import Any

import pytest


def beside(file: str, name: str) -> dict[str, Any]:
    """Read the tables of a file in the folder of a test."""
    return tomllib.loads(Path(file).with_name(name).read_text(encoding="utf-8"))


def cases_beside(file: str, name: str) -> list[Any]:
    """Give each of them under its name, for parametrize."""
    return [pytest.param(table, id=case) for case, table in beside(file, name).items()]


def worked_out(value: Any, names: dict[str, Any]) -> Any:
    """Work out the formulas of a value, which are text; names are what they may speak of."""
    if isinstance(value, str):
        return eval(f"({value})", dict(names))
    if isinstance(value, list):
        return [worked_out(each, names) for each in value]
    if isinstance(value, dict):
        return {name: worked_out(each, names) for name, each in value.items()}
    return value


def rows_beside(file: str, name: str) -> dict[str, Any]:
    """The rows of cases of a file in the folder of a test, by test; "none" stands for None."""
    return {title: _with_nones(tables) for title, tables in beside(file, name).items()}


def _with_nones(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_nones(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_nones(each) for each in value]
    return None if value == "none" else value
