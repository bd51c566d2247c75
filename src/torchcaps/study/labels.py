"""Words for recipes beside each other: what tells each from the others, and their order."""

from collections.abc import Sequence
from typing import Any

from torchcaps.models import MODELS
from torchcaps.train import Recipe


def labels_of(recipes: Sequence[Recipe]) -> list[str]:
    """For each recipe the fields and options in which it differs from some other one."""
    flat = [_flat(recipe) for recipe in recipes]
    models = dict.fromkeys(recipe.model for recipe in recipes)
    # Between networks of several names only what somebody wrote: their defaults are what they are.
    written = {name for recipe in recipes for name in (*_fields(recipe), *recipe.options)}
    labels = []
    for recipe, each in zip(recipes, flat, strict=True):
        alike = [x for x, other in zip(flat, recipes, strict=True) if other.model == recipe.model]
        names = [
            name
            for name in each
            if _differs(name, alike)
            or (name in written and all(name in x for x in flat) and _differs(name, flat))
        ]
        # A field that is not set has no value to tell.
        parts = [f"{k}={each[k]}" for k in names if k != "model" and each[k] is not None]
        labels.append(" ".join([recipe.model] * (len(models) > 1) + parts) or recipe.model)
    return labels


def _differs(name: str, rows: Sequence[dict[str, Any]]) -> bool:
    return len({repr(each.get(name)) for each in rows}) > 1


def _fields(recipe: Recipe) -> dict[str, Any]:
    fields: dict[str, Any] = recipe.model_dump()
    return {name: value for name, value in fields.items() if name not in ("options", "seed")}


def _flat(recipe: Recipe) -> dict[str, Any]:
    # What is not written out is what the network has by itself; of your own only its run knows.
    known = MODELS[recipe.model].options if recipe.model in MODELS else {}
    return {**_fields(recipe), **known, **recipe.options}


def place_of(recipe: Recipe) -> list[tuple[bool, float, str]]:
    """Where a recipe stands among others: by the values of its fields, numbers by their size."""
    values = _flat(recipe).values()
    are_numbers = [isinstance(each, int | float) for each in values]
    return [
        (is_number, float(each) if is_number else 0.0, str(each))
        for each, is_number in zip(values, are_numbers, strict=True)
    ]
