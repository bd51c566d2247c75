"""A study of one's own: a TOML file of some ten lines, as in docs/studies.md.

Every name of `vary` is a field of the recipe or, where there is no such field, an option of the
network. Each combination is a system, and `seed` says over which seeds its interval is taken.
"""

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchcaps.errors import TorchcapsError, short
from torchcaps.models import MODELS
from torchcaps.models.own import OWN
from torchcaps.study.court import needed_court
from torchcaps.study.look import OF_LAYERS, Look, kind_named, looks_named
from torchcaps.study.record import STUDY
from torchcaps.study.same import plain, trains
from torchcaps.study.system import LAST_SEED, Study, System
from torchcaps.train import Recipe, make_recipe, read_fields
from torchcaps.train.own_code import import_file

# What a file holds beside the fields of a recipe.
BESIDE = ("name", "measure", "vary", "claims", "reduced", "import")
# Values of a list that a sentence shows.
EXAMPLES = {"seed": "0, 1, 2", "measure": '"accuracy"'}


def read_study(path: str | os.PathLike[str]) -> Study:
    """Read the study that a file describes.

    >>> read_study("depth.toml").name
    'depth'
    """
    path = Path(path)
    if not path.exists():
        raise TorchcapsError(f"there is no study at {path}; is the path right?")
    try:
        fields = read_fields(path)
        given = {name: fields.pop(name) for name in BESIDE if name in fields}
        stem = re.sub(r"[^a-z0-9_-]+", "-", path.stem.lower())
        imports = given.get("import", [])
        if not isinstance(imports, list) or not all(isinstance(x, str) for x in imports):
            raise _refusal('import must list files of your own, import = ["my.py"]', imports)
        # Files beside this one. Before a recipe names what they register.
        files = tuple(path.parent / each for each in imports)
        for file in files:
            import_file(file)
        study = own_study(
            fields,
            name=given.get("name", stem.strip("-").lstrip("_-")),
            vary=given.get("vary", {}),
            measure=given.get("measure", ["accuracy"]),
            claims=given.get("claims", []),
            reduced=given.get("reduced"),
        )
        return replace(study, imports=files)
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
    """Make a study of the recipes that differ in what varies; its words are those of a file."""
    _check_words(name, vary, reduced)
    vary = dict(vary)
    seeds = vary.pop("seed", [fields.get("seed", 0)])
    _check_lists({**vary, "seed": seeds, "measure": measure})
    recipes = varied({**fields, "seed": seeds[0]}, vary)
    _check_apart(recipes)
    systems = [
        System(
            label=label,
            recipe=recipe,
            seeds=tuple(seeds),
            looks=_looks(measure, recipe),
            claims=_claims(claims, recipe),
            reduced=reduced,
            departures=recipe.departures() if claims else (),
        )
        for label, recipe in recipes
    ]
    if claims and reduced is None:
        about = list(dict.fromkeys(each for system in systems for each in system.claims))
        needed_court("a study that names claims").check_planned(systems, about)
    asked = [re.split("[@+]", each)[0] for each in measure]
    return Study(name, tuple(systems), unasked=tuple(x for x in OF_LAYERS if x not in asked))


def _claims(claims: list[str] | None, recipe: Recipe) -> tuple[str, ...]:
    """Give the ids of claims, where an option of the network may stand in braces."""
    found = [] if claims is None else claims
    if not isinstance(found, list) or not all(isinstance(x, str) for x in found):
        raise _refusal(
            "claims must be a list of ids, as `torchcaps study claims` prints them", claims
        )
    for option, value in {**MODELS[recipe.model].options, **recipe.options}.items():
        found = [each.replace(f"{{{option}}}", str(value)) for each in found]
    for each in found:
        needed_court("a study that names claims").find_claim(each)
    return tuple(found)


def varied(fields: Mapping[str, Any], vary: Mapping[str, list[Any]]) -> list[tuple[str, Recipe]]:
    """Make every combination of values a recipe, under the words that tell it from the others."""
    made = []
    for values in itertools.product(*vary.values()):
        chosen = dict(zip(vary, values, strict=True))
        options = {name: v for name, v in chosen.items() if name not in Recipe.model_fields}
        others = {name: v for name, v in chosen.items() if name in Recipe.model_fields}
        all_options = {**fields.get("options", {}), **options}
        recipe = make_recipe(**{**fields, **others, "options": all_options})
        if OWN in (recipe.model, recipe.data):
            raise TorchcapsError(
                f'model = "{OWN}" and data = "{OWN}" stand for what a Python program holds, and a '
                f"study trains by names; name both, or call fit and compare in Python."
            )
        label = " ".join(f"{name}={value}" for name, value in chosen.items())
        made.append((label or recipe.model, plain(recipe)))
    return made


def _looks(measure: list[str], recipe: Recipe) -> tuple[Look, ...]:
    """Make the looks; refuse before training what these images or this network cannot give."""
    looks = looks_named(measure, recipe.data)
    for look in looks:
        kind_named(look.kind).check(look, recipe)
    return looks


def _check_words(name: Any, vary: Any, reduced: Any) -> None:
    """Check what records hold, too: found wrong there, it would cost all that was trained."""
    if not isinstance(name, str) or not STUDY.fullmatch(name):
        raise _refusal(
            "name is the folder of the records, lower-case letters, digits, - and _, for example "
            'name = "depth"',
            name,
            so="; where none is given it is made of the name of the file",
        )
    if not isinstance(vary, Mapping):
        expected = "a table of lists, [vary] and below it a line such as seed = [0, 1, 2]"
        raise _refusal(f"vary must be {expected}", vary)
    if "options" in vary:
        raise TorchcapsError(
            "options cannot vary as a whole; name one of them under [vary], for example "
            "iterations = [1, 3]."
        )
    if reduced is not None and not (isinstance(reduced, str) and reduced.strip()):
        raise _refusal(
            "reduced must say in words how the study is smaller than what its claims ask for, for "
            'example reduced = "2 epochs"',
            reduced,
        )


def _check_lists(lists: Mapping[str, Any]) -> None:
    for name, values in lists.items():
        if not isinstance(values, list) or not values:
            example = EXAMPLES.get(name, '"dynamic", "uniform"')
            raise _refusal(
                f"{name} must be a list of values, for example {name} = [{example}]", values
            )
    measure, seeds = lists["measure"], lists["seed"]
    if not all(isinstance(each, str) for each in measure):
        names = 'names of statistics, for example measure = ["accuracy"]'
        raise _refusal(f"measure must list {names}", measure, verb="lists")
    # A bool is an int, too.
    if any(type(seed) is not int for seed in seeds) or len(set(seeds)) < len(seeds):
        raise _refusal("seed must list whole numbers, each once", seeds, verb="lists")
    if not all(0 <= seed <= LAST_SEED for seed in seeds):
        raise _refusal(f"seed must list numbers from 0 to {LAST_SEED}", seeds, verb="lists")


def _refusal(must: str, came: Any, *, verb: str = "is", so: str = "") -> TorchcapsError:
    return TorchcapsError(f"{must}, but {verb} {short(came)}{so}.")


def _check_apart(recipes: Sequence[tuple[str, Recipe]]) -> None:
    """Refuse a value that is there twice, however it was written."""
    found: dict[str, str] = {}
    for label, recipe in recipes:
        digest = trains(recipe)
        if digest in found:
            raise TorchcapsError(
                f"{short(found[digest])} and {short(label)} train the same network, which would "
                f"count twice; leave one of them out."
            )
        found[digest] = label
