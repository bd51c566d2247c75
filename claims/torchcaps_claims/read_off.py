"""What only the claims read of measurements that evaluations take too, registered with the studies
of torchcaps."""

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.models import MODELS
from torchcaps.study.look import Look, register_look
from torchcaps.study.measure import BATCH, Shown, and_last, by_layer, reads
from torchcaps.tasks.evaluate import evaluate
from torchcaps.train import Recipe
from torchcaps.train.start import initial_model


def needs_parts(look: Look, recipe: Recipe) -> None:
    """Refuse a look at where the parts of an image are, of images that do not tell."""
    if look.data != "part-whole":
        raise TorchcapsError(
            f"measure asks where the parts of an image are ({look.name}), which only the images of "
            f'part-whole tell, but data is "{look.data}"; leave it out.'
        )


def _needs_decoder(look: Look, recipe: Recipe) -> None:
    if {**MODELS[recipe.model].options, **recipe.options}.get("decoder") is False:
        raise TorchcapsError(
            f"measure asks what a decoder sees ({look.name}), but {recipe.model} has none; set "
            f"its option decoder = true, or leave it out."
        )


def begun(shown: Shown) -> nn.Module:
    """Make the network before training, which its recipe makes anew."""
    network = initial_model(shown.run.recipe, shown.trained.images("train"))
    return network.to(shown.trained.device).eval()


def at_start(values: Mapping[str, float]) -> dict[str, float]:
    """Rename numbers to those of a network before training."""
    return {re.sub(r"^\w+", r"\g<0>_at_start", name): value for name, value in values.items()}


@reads("zero-votes", "zero_blocks")
def _of_zero_votes(found: Any) -> dict[str, float]:
    return and_last(found.layers, "zero_blocks", "zero_votes", "dead_children")


@reads("antipodal", "antipodal_share")
def of_pairs(found: Any) -> dict[str, float]:
    """Read near-antipodal shares of a child by layer, the cosine of the nearest hundredth, the
    share of components below zero, and the mean share."""
    names = {"antipodal_share": "per_child", "lowest_cosine": "lowest"}
    mean = sum(layer.per_child for layer in found.layers) / len(found.layers)
    values = by_layer(found.layers, **names, negative_share="negative")
    return {**values, "antipodal_share": mean}


@register_look("antipodal-at-start", "antipodal_share_at_start", has_grid=False)
def _antipodal_at_start(shown: Shown) -> dict[str, float]:
    found = evaluate(begun(shown), shown.images, batch_size=BATCH, measurements=("antipodal",))
    return at_start(of_pairs(found.measured["antipodal"]))


@reads("perturbation", "perturbation_range", check=_needs_decoder)
def of_perturbation(found: Any) -> dict[str, float]:
    """Read the changes by how far components move: `change.0.2`, `change.8`."""
    return {f"change.{row.amount:g}": row.change for row in found.amounts}


@reads("selectivity", "entity_selectivity", check=needs_parts)
def of_selectivity(found: Any) -> dict[str, float]:
    """Read shares by layer of capsules, also by the thresholds that find most, and of random
    read-outs; nothing of a layer without a living capsule. Older records have `dedicated.2`, which
    took second areas over all images."""
    most = {
        f"one_part_at_most.{place}": max(shares)
        for place, layer in enumerate(found.layers, 1)
        if (shares := [share for *_, share in layer.sweep if share is not None])
    }
    return most | by_layer(found.layers, one_part="dedicated", one_part_by_chance="control")


@reads("separation", "class_separation", check=_needs_decoder)
def of_separation(found: Any) -> dict[str, float]:
    # In percent, as an accuracy is.
    return {"silhouette": found.silhouette, "nearest_centroid": 100 * found.nearest_centroid}
