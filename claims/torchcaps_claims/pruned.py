"""Steps of a plan that prune, as fields of a recipe."""

from collections.abc import Mapping
from typing import Any

# The way to prune of a recipe, by the step that plans name.
WAYS = {
    "magnitude": "magnitude",
    "mask_at_the_end": "mask_at_the_end",
    "prune": "lobster",
    "random_masks": "random_masks",
    "snip": "snip",
}
# Where no sparsity is said, as many weights as DR-CapsNet+REM has pruned [renzulli2025] Tables 1, 2
# and 9, so that networks are compared at the same one. By training images: affNIST's are those of
# expanded MNIST.
MATCHED = {
    "cifar10": 81.17,
    "expanded-mnist": 87.32,
    "fashion-mnist": 80.71,
    "mnist": 85.53,
    "svhn": 74.40,
}


def way_in(after: tuple[str, ...]) -> str | None:
    """The way to prune among the steps of a job; None where none of them prunes."""
    return next((WAYS[step] for step in after if step in WAYS), None)


def pruning_fields(after: tuple[str, ...], at: Mapping[str, Any], *, train: str) -> dict[str, Any]:
    """What the steps of a job add to its recipe; nothing where none of them prunes."""
    way = way_in(after)
    if way is None:
        return {}
    # LOBSTER finds its own sparsity, unless one is asked for.
    percent = at.get("sparsity", None if way == "lobster" else MATCHED.get(train))
    to = {} if percent is None else {"prune_to": percent / 100}
    return {"prune": way, **to}
