"""A study of one's own: a TOML file of some ten lines.

    model = "mitterreiter_grid"
    data = "part-whole"
    epochs = 2
    measure = ["accuracy", "dyr"]

    [options]
    widths = "16,16"

    [vary]
    routing = ["dynamic", "uniform"]
    seed = [0, 1, 2, 3, 4]

Every name of `vary` is a field of the recipe or, where there is no such field, an option of the
network. Each combination is a system, and `seed` says over which seeds its interval is taken.
"""

import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchcaps.errors import TorchcapsError, short
from torchcaps.study.look import OF_LAYERS, Look, looks_named
from torchcaps.study.runner.system import Study, System
from torchcaps.study.same import plain
from torchcaps.train import Recipe, make_recipe, read_fields

__all__ = ["own_study", "read_study", "varied"]

# What a file holds beside the fields of a recipe.
OWN = ("name", "measure", "vary", "claims", "reduced")


def read_study(path: str | os.PathLike[str]) -> Study:
    """The study that a file describes.

    >>> read_study("depth.toml").name
    'depth'
    """
    path = Path(path)
    try:
        fields = read_fields(path)
        given = {name: fields.pop(name) for name in OWN if name in fields}
        name = given.get("name", re.sub(r"[^a-z0-9_-]+", "-", path.stem.lower()).strip("-"))
        return own_study(
            fields,
            name=name,
            vary=given.get("vary", {}),
            measure=given.get("measure", ["accuracy"]),
            claims=given.get("claims", []),
            reduced=given.get("reduced"),
        )
    except TorchcapsError as error:
        raise TorchcapsError(f"{path}: {error}") from None


def own_study(
    fields: Mapping[str, Any],
    *,
    name: str,
    vary: Mapping[str, list[Any]],
    measure: list[str],
    claims: list[str] | None = None,
    reduced: str | None = None,
) -> Study:
    """A study of the recipes that differ in what varies.

    Arguments:
        fields: of the recipe, as `make_recipe` takes them.
        name: the folder of its records.
        vary: values by the name of a field or an option; "seed" has the seeds.
        measure: statistics by name: "accuracy", "dyr", "accuracy@affnist-style/test".
        claims: ids of the claims that its records speak of, if any.
        reduced: in words, how it is smaller than what those claims ask for.
    """
    vary = dict(vary)
    seeds = vary.pop("seed", [fields.get("seed", 0)])
    _check_lists({**vary, "seed": seeds, "measure": measure})
    systems = [
        System(
            label=label,
            recipe=recipe,
            seeds=tuple(seeds),
            looks=_looks(measure, recipe),
            claims=tuple(claims or ()),
            reduced=reduced,
        )
        for label, recipe in varied({**fields, "seed": seeds[0]}, vary)
    ]
    asked = [re.split("[@+]", each)[0] for each in measure]
    return Study(name, tuple(systems), unasked=tuple(x for x in OF_LAYERS if x not in asked))


def varied(fields: Mapping[str, Any], vary: Mapping[str, list[Any]]) -> list[tuple[str, Recipe]]:
    """Every combination of values as a recipe, under the words that tell it from the others."""
    made = []
    for values in itertools.product(*vary.values()):
        chosen = dict(zip(vary, values, strict=True))
        options = {name: v for name, v in chosen.items() if name not in Recipe.model_fields}
        others = {name: v for name, v in chosen.items() if name in Recipe.model_fields}
        all_options = {**fields.get("options", {}), **options}
        recipe = make_recipe(**{**fields, **others, "options": all_options})
        label = " ".join(f"{name}={value}" for name, value in chosen.items())
        made.append((label or recipe.model, plain(recipe)))
    return made


def _looks(measure: list[str], recipe: Recipe) -> tuple[Look, ...]:
    return looks_named(measure, recipe.data)


def _check_lists(lists: Mapping[str, Any]) -> None:
    for name, values in lists.items():
        if not isinstance(values, list) or not values:
            raise TorchcapsError(
                f"{name} must be a list of values, for example {name} = [{_example(name)}], but is "
                f"{short(values)}."
            )
    wrong = [seed for seed in lists["seed"] if not isinstance(seed, int)]
    if wrong or len(set(lists["seed"])) < len(lists["seed"]):
        raise TorchcapsError(
            f"seed must list whole numbers, each once, but lists {short(lists['seed'])}."
        )


def _example(name: str) -> str:
    return {"seed": "0, 1, 2", "measure": '"accuracy"'}.get(name, '"dynamic", "uniform"')
