"""Steps of a run by its recipe: rows of metrics count epochs."""

import math
from collections.abc import Mapping
from typing import Any

from torchcaps.data.registry import data_set


def ends_of_epochs(recipe: Mapping[str, Any], epochs: int) -> tuple[int, ...]:
    """The step at which each of so many epochs ended.

    Arguments:
        recipe: as a record holds it.
        epochs: how many.

    >>> recipe = {"data": "mnist", "train_images": 20000, "batch_size": 64}
    >>> ends_of_epochs(recipe, 3)
    (313, 626, 939)
    """
    images = recipe.get("train_images")
    if images is None:
        share = 1 - recipe.get("validation_share", 0.1)
        images = round(data_set(recipe["data"]).n_train * share)
    batches = math.ceil(images / recipe["batch_size"])
    steps = math.ceil(batches / recipe.get("accumulate", 1))
    return tuple(steps * epoch for epoch in range(1, epochs + 1))
