"""One look at a trained network."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch

from torchcaps.analysis import Compactness, Keys, MeasureActivity, MeasureDynamics, measure
from torchcaps.analysis.result import Result
from torchcaps.data import Images
from torchcaps.prune import sparsity
from torchcaps.study.look import Look
from torchcaps.study.sets import SETS
from torchcaps.tasks.evaluate import evaluate
from torchcaps.tasks.measurements import Levels, seen_through
from torchcaps.tasks.trained import Trained, open_trained
from torchcaps.train import Run

__all__ = ["look_at", "root_of"]

# Images a pass: few enough that the couplings of a thousand capsules fit in memory.
BATCH = 100


def look_at(run: Run, look: Look, *, root: str | os.PathLike[str] | None) -> dict[str, float]:
    """The numbers of one look at a finished run."""
    recipe = run.recipe
    if look == Look("accuracy", recipe.test_data or recipe.data):
        # Looked at once already, at the end of training.
        return {"accuracy": 100 * run.result()["test_accuracy"]}
    if look.kind == "weights":
        return {"sparsity": 100 * sparsity(run.model()).share}
    trained = open_trained(run.folder)
    where = root_of(look.data, root)
    images = trained.images(look.split, data=look.data, root=None if where is None else Path(where))
    grid: int | tuple[int, ...] = look.levels[0] if len(look.levels) == 1 else look.levels
    if look.kind == "layers":
        return dict(_of_layers(trained, images, grid or None))
    found = evaluate(
        trained.model,
        images,
        batch_size=min(BATCH, recipe.batch_size),
        levels=grid or None,
        measurements=() if look.kind == "accuracy" else (look.kind,),
    )
    if look.kind == "accuracy":
        return {"accuracy": 100 * found.accuracy}
    if look.kind == "compactness":
        return _of_factors(found.measured["compactness"])
    keys = found.measured["keys"]
    assert isinstance(keys, Keys)
    each = {f"keys.{row.name}": float(row.keys) for row in keys.classes}
    mean = sum(each.values()) / len(each)
    return {"entropy": keys.entropy, "entropy_bound": keys.bound, "keys": mean, **each}


def _of_factors(compactness: Result) -> dict[str, float]:
    """The score of each factor along which some pose varies, and their mean."""
    assert isinstance(compactness, Compactness)
    each = {row.factor: row.score for row in compactness.factors if row.score is not None}
    found = {f"compactness.{factor}": score for factor, score in each.items()}
    return {"compactness": sum(each.values()) / len(each), **found} if each else {}


def root_of(data: str, root: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """The folder of a set; None for images that are made."""
    return None if data in SETS and not SETS[data].has_files else root


def _of_layers(
    trained: Trained, images: Images, levels: Levels | None
) -> Iterator[tuple[str, float]]:
    network = seen_through(trained.model.eval(), levels=levels, names=("activity", "dynamics"))
    batches = (images.batch(index) for index in torch.arange(len(images)).split(BATCH))
    on_device = ((b.pixels.to(trained.device), b.labels.to(trained.device)) for b in batches)
    dynamics, activity = measure(network, on_device, [MeasureDynamics(), MeasureActivity()])
    for number, layer in enumerate(activity.layers, 1):
        for name in ("cnm", "cns", "car", "cas", "cdr", "cds"):
            yield f"{name}.{number}", float(getattr(layer, name))
        yield f"capsules_alive.{number}", float(layer.n - layer.cds)
    for number, routed in enumerate(dynamics.layers, 1):
        for name in ("dyr", "dys"):
            value = getattr(routed, name)
            # None where no two parents live: there is nothing to route.
            if value is not None:
                yield f"{name}.{number}", float(value)
