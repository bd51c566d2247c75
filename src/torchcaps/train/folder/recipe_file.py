"""A recipe out of a file: TOML that somebody wrote, or the JSON of a run."""

import os
import tomllib
from pathlib import Path
from typing import Any

from torchcaps._json import parsed, read_text, why_not
from torchcaps._paths import path_of
from torchcaps.errors import TorchcapsError, short
from torchcaps.train.recipe import MOST, YOUNGER, Recipe, make_recipe

# A page of text: TOML of a hostile make takes seconds for a page, and minutes for ten.
MOST_BYTES = 16_384
# What was done before a recipe that a run wrote could say it, whatever its protocol says today.
AS_BEFORE: dict[str, Any] = {"channels_last": False, **YOUNGER}


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Give a recipe out of a TOML file, or out of the recipe.json of a run.

    Arguments:
        path: a TOML file, or the recipe.json of a run.

    >>> read_recipe("my-run/recipe.json").model
    """
    fields = read_fields(path)
    try:
        return make_recipe(**fields)
    except TorchcapsError as error:
        raise TorchcapsError(f"{path}: {error}") from None


def read_fields(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Give the fields that a TOML or JSON file gives, not yet a whole recipe.

    JSON is what a run wrote: a field that is missing there was not known yet.

    Arguments:
        path: a TOML or JSON file.

    >>> read_fields("recipe.toml")  # doctest: +SKIP
    """
    path = path_of("path", path)
    if not path.is_file():
        raise TorchcapsError(f"there is no recipe at {path}; a run folder holds a recipe.json.")
    kind = "JSON" if path.suffix == ".json" else "TOML"
    if (size := path.stat().st_size) > MOST_BYTES:
        raise TorchcapsError(
            f"{path} has {size:,} bytes, and a recipe has at most {MOST_BYTES:,}; is it another "
            f"file?"
        )
    try:
        text = read_text(path)
        fields = parsed(text) if kind == "JSON" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise TorchcapsError(f"{path} cannot be read as {kind} ({why_not(error)}).") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("options", {}), dict):
        raise TorchcapsError(
            f"{path} must hold names with values, one a field of the recipe, and names with values "
            f"in its options too; a run folder holds such a file, recipe.json."
        )
    return fields if kind == "TOML" else {**AS_BEFORE, **fields}


def channels_last(path: Path, fields: dict[str, Any]) -> bool:
    """Give what the fields of a run's recipe say of that."""
    value = fields.get("channels_last", False)
    if not isinstance(value, bool):
        raise _wrong(path, "channels_last", "true or false", value)
    return value


def sides(path: Path, fields: dict[str, Any], name: str) -> tuple[int, int] | None:
    """Give height and width that the fields of a run's recipe have under a name."""
    value = fields.get(name)
    if value is None:
        return None
    # A bool is an int, too.
    is_pair = isinstance(value, list) and [type(side) for side in value] == [int, int]
    if not is_pair or not all(1 <= side <= MOST for side in value):
        raise _wrong(path, name, "height and width in pixels, or null", value)
    return value[0], value[1]


def _wrong(path: Path, name: str, expected: str, value: object) -> TorchcapsError:
    return TorchcapsError(
        f"{path}: {name} must be {expected}, but came as {short(value)}; was it edited? Put it "
        f"back as the run wrote it."
    )
