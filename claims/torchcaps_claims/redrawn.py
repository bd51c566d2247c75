"""What components of a class capsule draw, by a decoder that is trained on the frozen network
[renzulli2025] Fig. 11.

A component draws something where the drawing changes visibly, by 0.01 of a pixel's range or more at
both ends of −0.2 to 0.2, and the more the farther it moves, by a correlation of ranks of 0.9 or
more.

Ambiguities: the paper shows drawings and judges by eye; both limits are those of the claim's row,
the ends those of [gu2021] Fig. 4. How the decoder is trained it does not say: here on the images
and in the batches of the network, at the usual rate of a recipe, for as many epochs and at most 20.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from torchcaps.analysis import MeasurePerturbation, measure
from torchcaps.data import Images
from torchcaps.errors import Diverged
from torchcaps.tasks.decoding import decoder_of
from torchcaps.tasks.trained import open_trained
from torchcaps.train import Recipe, Run, fit, make_recipe
from torchcaps_claims.ranks import spearman

AMOUNTS = (-0.2, -0.15, -0.1, -0.05, 0.05, 0.1, 0.15, 0.2)
VISIBLE, MONOTONE = 0.01, 0.9
EPOCHS, BATCH = 20, 100
# The images as the network saw them, without how it was pruned or ended.
KEPT = (
    "data",
    "image_size",
    "groups",
    "crop",
    "standardise",
    "augment",
    "train_images",
    "validation_share",
    "batch_size",
    "seed",
)


def decoder_recipe(run: Run) -> Recipe:
    """The recipe that trains a decoder and nothing else."""
    recipe = run.recipe
    parts = [name for name, part in run.model().named_children() if [*part.parameters()]]
    return make_recipe(
        model=recipe.model,
        options={**recipe.options, "decoder": True},
        epochs=min(recipe.epochs, EPOCHS),
        freeze=tuple(name for name in parts if name != "decoder"),
        **{name: getattr(recipe, name) for name in KEPT},
    )


def redrawn_of(
    run: Run,
    images: Images,
    *,
    root: str | os.PathLike[str] | None,
    time_budget: float | None = None,
) -> dict[str, float]:
    """`drawn_components`, the share that draws something, and `drawn_change`, the mean change at
    both ends; of test images, each by the capsule of its class. `drawn_known` is 1, and alone and 0
    where the decoder diverged, which says nothing of the network. Past the time budget the
    decoder's state is saved."""
    where = None if root is None else Path(root)
    folder = run.folder.with_name(f"{run.folder.name}.decoder")
    label = f"decoder of {run.folder.name}"
    try:
        drawing = fit(
            decoder_recipe(run),
            folder,
            root=where,
            begin_with=run.folder,
            label=label,
            time_budget=time_budget,
        )
    except Diverged:
        return {"drawn_known": 0.0}
    trained = open_trained(drawing.folder)
    network, decoder = trained.model.eval(), decoder_of(trained.model)
    batches = (images.batch(index) for index in torch.arange(len(images)).split(BATCH))
    pairs = ((batch.pixels.to(trained.device), batch.labels) for batch in batches)
    measurement = MeasurePerturbation(decoder.seen, decoder.layers, amounts=AMOUNTS)
    (found,) = measure(network, pairs, [measurement])
    by_component = torch.stack([row.each for row in found.amounts], 1).tolist()
    ends = [(changes[0] + changes[-1]) / 2 for changes in by_component]
    draws = [draws_something(changes) for changes in by_component]
    return {
        "drawn_components": sum(draws) / len(draws),
        "drawn_change": sum(ends) / len(ends),
        "drawn_known": 1.0,
    }


def draws_something(changes: Sequence[float]) -> bool:
    """Whether a component does, whose drawing changes by so much at each of AMOUNTS."""
    far = tuple(abs(amount) for amount in AMOUNTS)
    return min(changes[0], changes[-1]) >= VISIBLE and spearman(far, tuple(changes)) >= MONOTONE
