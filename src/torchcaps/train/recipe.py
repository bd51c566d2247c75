"""What to train: frozen, validated, hashed to tell runs apart."""

import hashlib
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from torchcaps.data import SOURCES
from torchcaps.errors import TorchcapsError, nearest
from torchcaps.models import MODELS

__all__ = ["Recipe", "make_recipe", "read_recipe"]

Option = bool | int | float | str


class Recipe(BaseModel):
    """One training run, but for where its files lie.

    Training is Adam on margin loss plus reconstruction, validated on a share of the training
    images.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: str
    data: str
    options: dict[str, Option] = {}
    epochs: int = Field(3, ge=1)
    batch_size: int = Field(128, ge=1)
    learning_rate: float = Field(1e-3, gt=0)
    reconstruction_weight: float = Field(0.0005, ge=0)
    validation_share: float = Field(0.1, gt=0, lt=1)
    seed: int = Field(0, ge=0, lt=2**32)

    @field_validator("model")
    @classmethod
    def _known_model(cls, name: str) -> str:
        if name not in MODELS:
            raise ValueError(f"{name!r} is unknown; {nearest(name, MODELS)}")
        return name

    @field_validator("data")
    @classmethod
    def _known_data(cls, name: str) -> str:
        if name not in SOURCES:
            raise ValueError(f"{name!r} is unknown; {nearest(name, SOURCES)}")
        return name

    def digest(self) -> str:
        """Twelve characters that change when anything in the recipe does."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]


def make_recipe(**fields: Any) -> Recipe:
    """A recipe of its fields; everything wrong with them in one sentence.

    >>> make_recipe(model="mitterreiter_5x16", data="part-whole", epochs=5)
    """
    for field in fields:
        if field not in Recipe.model_fields:
            raise TorchcapsError(
                f"a recipe has no field {field!r}; {nearest(field, Recipe.model_fields)}."
            )
    try:
        return Recipe(**fields)
    except ValidationError as error:
        raise TorchcapsError(f"the recipe does not hold: {_in_words(error)}.") from None


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """A recipe out of a TOML file, or out of the recipe.json of a run."""
    path = Path(path)
    if not path.is_file():
        raise TorchcapsError(f"there is no recipe at {path}; a run folder holds a recipe.json.")
    try:
        if path.suffix == ".json":
            return Recipe.model_validate_json(path.read_bytes())
        return make_recipe(**tomllib.loads(path.read_text()))
    except ValidationError as error:
        raise TorchcapsError(f"{path} holds no valid recipe: {_in_words(error)}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TorchcapsError(f"{path} cannot be read as TOML ({error}).") from None


def _in_words(error: ValidationError) -> str:
    faults = []
    for fault in error.errors():
        where = ".".join(map(str, fault["loc"]))
        what = fault["msg"].removeprefix("Value error, ")
        said = "" if fault["type"] in ("value_error", "missing") else f", not {fault['input']!r}"
        faults.append(f"{where}: {what[0].lower()}{what[1:]}{said}" if where else what)
    return "; ".join(faults)
