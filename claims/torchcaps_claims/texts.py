"""What is data and no code: TOML beside the modules, or beside the rows of the papers."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def read_texts(name: str) -> dict[str, Any]:
    """Read NAME.toml beside the modules. Of pages a wheel holds the file there too, a clone beside
    the package."""
    folder = HERE if (HERE / f"{name}.toml").is_file() else HERE.parent
    return tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))


def alike(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Give rows what they do not say themselves: that of the row before them which `like` names."""
    found: dict[str, dict[str, Any]] = {}
    for name, row in rows.items():
        found[name] = {**found.get(row.get("like", ""), {}), **row}
        found[name].pop("like", None)
    return found
