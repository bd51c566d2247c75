"""What to train: frozen, validated, hashed to tell runs apart."""

import hashlib
import json
import math
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from torchcaps.data import SOURCES
from torchcaps.errors import TorchcapsError, nearest
from torchcaps.models import MODELS

__all__ = ["Recipe", "make_recipe", "read_fields", "read_recipe"]


class Recipe(BaseModel):
    """One training run, but for where its files lie.

    Training is Adam on the loss that fits the network's scores (margin loss for lengths,
    cross-entropy for logits) plus reconstruction, validated on a share of the training images.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    model: str
    data: str
    options: dict[str, Any] = {}
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

    @field_validator("options")
    @classmethod
    def _plain_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name, value in options.items():
            finite = not isinstance(value, float) or math.isfinite(value)
            if not isinstance(value, bool | int | float | str) or not finite:
                raise ValueError(
                    f"{name} must be true or false, a finite number or a word, not {value!r}"
                )
        return options

    def digest(self) -> str:
        """Twelve characters that change when anything in the recipe does."""
        in_order = self.model_copy(update={"options": dict(sorted(self.options.items()))})
        return hashlib.sha256(in_order.model_dump_json().encode()).hexdigest()[:12]


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
    fields = read_fields(path)
    try:
        return make_recipe(**fields)
    except TorchcapsError as error:
        raise TorchcapsError(f"{path}: {error}") from None


def read_fields(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields that a TOML or JSON file gives, not yet a whole recipe."""
    path = Path(path)
    if not path.is_file():
        raise TorchcapsError(f"there is no recipe at {path}; a run folder holds a recipe.json.")
    kind = "JSON" if path.suffix == ".json" else "TOML"
    try:
        text = path.read_text(encoding="utf-8")
        fields = json.loads(text) if kind == "JSON" else tomllib.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TorchcapsError(f"{path} cannot be read as {kind} ({error}).") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("options", {}), dict):
        raise TorchcapsError(f"{path} must hold the fields of a recipe by name, options too.")
    return fields


def _in_words(error: ValidationError) -> str:
    faults = []
    for fault in error.errors():
        where = ".".join(map(str, fault["loc"]))
        what = fault["msg"].removeprefix("Value error, ")
        said = "" if fault["type"] in ("value_error", "missing") else f", not {fault['input']!r}"
        faults.append(f"{where}: {what[0].lower()}{what[1:]}{said}" if where else what)
    return "; ".join(faults)
