"""What options of named networks mean; `torchcaps models NAME` prints it."""

import tomllib
from importlib import resources

_FILE = resources.files("torchcaps.models").joinpath("meanings.toml")
MEANINGS: dict[str, str] = tomllib.loads(_FILE.read_text("utf-8"))
