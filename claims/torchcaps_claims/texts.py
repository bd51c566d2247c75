"""What is data and no code: TOML beside the modules, or beside the rows of the papers."""

import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def read_texts(name: str) -> dict[str, Any]:
    """Read NAME.toml beside the modules. Of pages a wheel holds the file there too, a clone beside
    the package."""
    folder = HERE if (HERE / f"{name}.toml").is_file() else HERE.parent
    return tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
