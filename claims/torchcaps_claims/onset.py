"""When learning began, by the accuracy of training images after every epoch: within the epoch that
was the first to end more than 10 points above chance. Rows of metrics count epochs, and recipes say
how many steps one has."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torchcaps.analysis import curves
from torchcaps.data.registry import data_set
from torchcaps.study.record import Record

# What protocols measure that hold nothing out.
MEASURED = "training_sample_accuracy"


class Onset(NamedTuple):
    """The step lies above `after` and is `by` at most; None where learning never began."""

    after: int
    by: int | None


def ends_of_epochs(recipe: Mapping[str, Any], epochs: int) -> tuple[int, ...]:
    """The step at which each of so many epochs ended.

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


def onset_in(recipe: Mapping[str, Any], curve: Sequence[float]) -> Onset:
    """Between which steps learning began, by the accuracy after each epoch, a share.

    >>> recipe = {"data": "mnist", "train_images": 20000, "batch_size": 64}
    >>> onset_in(recipe, (0.1, 0.1, 0.9))
    Onset(after=626, by=939)
    """
    ends = ends_of_epochs(recipe, len(curve))
    # Rows hold numbers of 32 bits, in which 0.2 is a little more.
    shares = [round(share, 6) for share in curve]
    by = curves.onset(ends, shares, chance=1 / data_set(recipe["data"]).n_classes)
    return Onset(ends[-1], None) if by is None else Onset(by - ends[0], by)


def onsets_at_least(record: Record) -> list[float]:
    """Steps that passed before learning began, at least so many, a seed; nothing where one of them
    was not measured."""
    by_seed = [
        [row[MEASURED] for row in seed.per_epoch if MEASURED in row]
        for seed in record.seeds
        if seed.failed is None
    ]
    if not all(by_seed):
        return []
    return [float(onset_in(record.recipe, curve).after) for curve in by_seed]
