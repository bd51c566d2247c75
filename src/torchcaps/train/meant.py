"""Fields of a recipe by the names that they have elsewhere, for who types those."""

import tomllib
from importlib import resources

_FILE = resources.files("torchcaps.train").joinpath("meant.toml")
MEANT: dict[str, str] = tomllib.loads(_FILE.read_text("utf-8"))
