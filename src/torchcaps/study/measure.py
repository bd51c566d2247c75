"""Looks at a trained network: each says what it gives, by the names that records have."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.analysis import MeasureActivity, MeasureDynamics, measure
from torchcaps.data import Images
from torchcaps.data.registry import SETS
from torchcaps.errors import TorchcapsError
from torchcaps.layers import DynamicRouting
from torchcaps.prune import sparsity
from torchcaps.study.look import OF_COUPLINGS, OF_LAYERS, Look, Take, kind_named, register_look
from torchcaps.tasks.evaluate import evaluate
from torchcaps.tasks.evaluation import Evaluation
from torchcaps.tasks.measurements import seen_through
from torchcaps.tasks.trained import Trained, open_trained
from torchcaps.train import Recipe, Run
from torchcaps.train.frozen import freeze
from torchcaps.types import Output

# Images a pass: few enough that the couplings of a thousand capsules fit in memory.
BATCH = 100


@dataclass(frozen=True)
class Shown:
    """A finished run, and what is looked at."""

    run: Run
    look: Look
    root: str | os.PathLike[str] | None
    # Seconds for what a look trains; what only looks takes its time.
    time_budget: float | None = None

    @cached_property
    def trained(self) -> Trained:
        return open_trained(self.run.folder)

    @property
    def is_of_own(self) -> bool:
        """Whether the run has written down the digest of the images."""
        recipe, look = self.run.recipe, self.look
        tested_on = recipe.test_data or recipe.data
        return look.data == (tested_on if look.split == "test" else recipe.data)

    @cached_property
    def images(self) -> Images:
        """Load the images; refuse others than the run was tested on."""
        look, where = self.look, root_of(self.look.data, self.root)
        root = None if where is None else Path(where)
        images = self.trained.images(look.split, data=look.data, root=root)
        # Others of the split it was trained on are refused already.
        if look.split == "test" and self.is_of_own and not self.trained.knows(images, "test"):
            raise TorchcapsError(
                f"{self.run.folder} was tested on other images of {look.data} than there are now, "
                f"and its record would be of both; put them back as they were, or name their "
                f"--root."
            )
        return images

    @property
    def grid(self) -> int | tuple[int, ...] | None:
        """Give the levels that couplings are moved to, if any."""
        levels = self.look.levels
        return levels[0] if len(levels) == 1 else levels or None

    def network(self, *names: str, of: Trained | None = None) -> Callable[[Tensor], Output]:
        """Give the network, or another one on the same grid, for pixels that lie anywhere."""
        trained = of or self.trained
        network = seen_through(trained.model.eval(), levels=self.grid, names=names)
        return lambda pixels: network(pixels.to(trained.device))

    def evaluated(self, *measurements: str) -> Evaluation:
        """Show it the images, with these measurements."""
        size = min(BATCH, self.run.recipe.batch_size)
        return evaluate(
            self.trained.model,
            self.images,
            batch_size=size,
            levels=self.grid,
            measurements=measurements,
        )


def look_at(
    run: Run,
    look: Look,
    *,
    root: str | os.PathLike[str] | None,
    time_budget: float | None = None,
) -> dict[str, float]:
    """Take one look at a finished run."""
    return kind_named(look.kind).take(Shown(run, look, root, time_budget))


def images_of_others(run: Run, look: Look, *, root: str | os.PathLike[str] | None) -> str | None:
    """Read the digest of the images of a look, where the finished run has written none down."""
    shown = Shown(run, look, root)
    return None if look.kind == "weights" or shown.is_of_own else shown.images.digest()


def reads(name: str, *statistics: str, **how: Any) -> Callable[[Take], Take]:
    """Register a look that reads what the measurement of its name found."""

    def enter(read: Take) -> Take:
        look = register_look(name, *statistics, **how)
        look(lambda shown: read(shown.evaluated(name).measured[name]))
        return read

    return enter


@register_look("accuracy", "accuracy")
def _accuracy(shown: Shown) -> dict[str, float]:
    if shown.is_of_own and shown.look.split == "test" and not shown.look.levels:
        # Looked at once already, at the end of training.
        return {"accuracy": shown.run.accuracy}
    return {"accuracy": 100 * shown.evaluated().accuracy}


@register_look("weights", "agreement", "nonzero_parameters", "sparsity", has_grid=False)
def _weights(shown: Shown) -> dict[str, float]:
    return _of_weights(shown.run.model(), frozen=shown.run.recipe.freeze)


def _of_weights(model: nn.Module, *, frozen: tuple[str, ...] = ()) -> dict[str, float]:
    """Count weights in percent and in millions, as the papers print them, and read how sharp
    agreement became where a routed layer learned it, `agreement.2`. Parts that were frozen were not
    pruned, and no pruner counted them."""
    freeze(model, frozen)
    nonzero = sum(int(weight.count_nonzero()) for weight in model.parameters())
    routed = [module for module in model.modules() if isinstance(module, DynamicRouting)]
    sharp = {
        f"agreement.{number}": routing.agreement.item()
        for number, routing in enumerate(routed, 1)
        if isinstance(routing.agreement, nn.Parameter)
    }
    return {"sparsity": 100 * sparsity(model).share, "nonzero_parameters": nonzero / 1e6, **sharp}


def by_layer(layers: Iterable[Any], *names: str, **renamed: str) -> dict[str, float]:
    """Name numbers of layers by their place from below, `gini.2`; leave out what a layer has not.
    `renamed` has the names of attributes that are called otherwise there."""
    attributes = {name: name for name in names} | renamed
    return {
        f"{name}.{place}": float(value)
        for place, layer in enumerate(layers, 1)
        for name, attribute in attributes.items()
        if (value := getattr(layer, attribute)) is not None
    }


def and_last(layers: Sequence[Any], *names: str, **renamed: str) -> dict[str, float]:
    """Name the numbers of each layer, and those of the last one by themselves."""
    last = by_layer(layers[-1:], *names, **renamed)
    own = {name.removesuffix(".1"): value for name, value in last.items()}
    return by_layer(layers, *names, **renamed) | own


@reads("keys", "entropy", "keys")
def _of_keys(keys: Any) -> dict[str, float]:
    """Read entropy, its bound, and the keys of each class, `keys.3`, and of a class on average."""
    each = {f"keys.{row.name}": float(row.keys) for row in keys.classes}
    mean = sum(each.values()) / len(each)
    return {"entropy": keys.entropy, "entropy_bound": keys.bound, "keys": mean, **each}


@reads("inequality", "coupling_inequality", "coupling_levels")
def _of_inequality(found: Any) -> dict[str, float]:
    return and_last(found.layers, "gini", small_couplings="small", even_couplings="even")


@reads("calibration", "confidence")
def _of_calibration(found: Any) -> dict[str, float]:
    """Take the mean over images of the largest probability."""
    answers = found.answers
    return {"confidence": float((answers.counts * answers.confidence).sum() / answers.cases)}


@reads("polarisation", "polarisation")
def _of_steps(found: Any) -> dict[str, float]:
    """Read polarisation by layer and iteration, `polarisation.1.3`, and that of the last of all."""
    layers = list(dict.fromkeys(row.name for row in found.steps))
    values = {
        f"polarisation.{layers.index(row.name) + 1}.{row.iteration}": row.polarisation
        for row in found.steps
    }
    if found.steps:
        values["polarisation"] = found.steps[-1].polarisation
    return {name: value for name, value in values.items() if value is not None}


def root_of(data: str, root: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """Name the folder of a set; None for images that are made."""
    return None if data in SETS and not SETS[data].has_files else root


def trunk_file(recipe: Recipe, root: str | os.PathLike[str] | None) -> Path | None:
    """Name the weights of a frozen trunk, which lie beside the data sets under the trunk's name."""
    trunk = recipe.options.get("trunk")
    return None if trunk is None else Path(root or "data") / f"{trunk}.safetensors"


@register_look("layers", *OF_LAYERS)
def _of_layers(shown: Shown) -> dict[str, float]:
    network, images = shown.network("activity", "dynamics"), shown.images
    batches = (images.batch(index) for index in torch.arange(len(images)).split(BATCH))
    pairs = ((batch.pixels, batch.labels) for batch in batches)
    dynamics, activity = measure(network, pairs, [MeasureDynamics(), MeasureActivity()])
    values = by_layer(activity.layers, "cnm", "cns", "car", "cas", "cdr", "cds")
    for number, layer in enumerate(activity.layers, 1):
        values[f"capsules_alive.{number}"] = float(layer.n - layer.cds)
        at = {factor: cas for factor, cas, _ in activity.sweep[layer.name]}
        values[f"car_twice.{number}"] = at[2.0] / layer.n
    # None where no two parents live: there is nothing to route.
    return values | by_layer(dynamics.layers, *OF_COUPLINGS)
