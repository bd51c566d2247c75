"""Which recipes train the same network, however they were written."""

import json
from functools import cache
from typing import Any

from torchcaps.errors import TorchcapsError
from torchcaps.models import MODELS
from torchcaps.study.record import Record
from torchcaps.train import Recipe, make_recipe
from torchcaps.train.folder.recipe_file import AS_BEFORE


def plain(recipe: Recipe) -> Recipe:
    """Leave out of a recipe the options that its network has by itself.

    >>> plain(make_recipe(model="peer_sign_em", data="sign", options={"bias": False})).options
    {}
    """
    known = MODELS[recipe.model].options
    # 1 is no True: they are options of two kinds.
    options = {
        name: value
        for name, value in recipe.options.items()
        if name not in known or repr(known[name]) != repr(value)
    }
    return recipe.model_copy(update={"options": options})


def trains(recipe: Recipe) -> str:
    """Give two recipes one digest which train the same networks, seed by seed, whatever protocol
    filled in their fields, and whether or not they say that they are tested where they train."""
    nameless: dict[str, Any] = {"seed": 0, "protocol": None}
    if recipe.test_data == recipe.data:
        nameless["test_data"] = None
    return plain(recipe).model_copy(update=nameless).digest()


def trained_in(record: Record) -> str | None:
    """Return the digest of what a record is about; None of a recipe that no plan of today has."""
    return _trained_in(json.dumps(record.recipe))


# A page of all claims asks for that of every record nine hundred times.
@cache
def _trained_in(recipe: str) -> str | None:
    try:
        return trains(make_recipe(**{**AS_BEFORE, **json.loads(recipe)}))
    except TorchcapsError:
        return None
