"""What is read off a trained network, and what each number is called.

A look is one pass over images. It gives numbers by name: `accuracy` in percent, or, of the look
`layers`, `dyr.2` for the second routed layer and `cns.2` for the second layer of capsules, both
counted from below as the papers do. Numbers of other images than the run's own test images carry
their name: `accuracy@sign/train`.
"""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch

from torchcaps.analysis import MeasureActivity, MeasureDynamics, measure
from torchcaps.data import Images
from torchcaps.errors import TorchcapsError, nearest
from torchcaps.study.job import Job
from torchcaps.study.sets import SETS
from torchcaps.tasks.evaluate import evaluate
from torchcaps.tasks.trained import SPLITS, Trained, open_trained
from torchcaps.train import Run

__all__ = ["OF_LAYERS", "Look", "look_at", "looks_of", "root_of"]

Kind = Literal["accuracy", "layers"]
# Statistics of the layers of capsules, and of the routings between them.
OF_LAYERS = ("capsules_alive", "cnm", "cns", "car", "cas", "cdr", "cds", "dyr", "dys")
# Images a pass: few enough that the couplings of a thousand capsules fit in memory.
BATCH = 100


class Look(NamedTuple):
    """A kind of pass over the images of one set."""

    kind: Kind
    data: str
    split: str = "test"

    @property
    def images(self) -> str:
        """The images by name."""
        return f"{self.data}/{self.split}"

    @property
    def name(self) -> str:
        """What it is called in the ledger."""
        return f"{self.kind}@{self.images}"

    def key(self, number: str, *, trained_on: str) -> str:
        """What one of its numbers is called in a record."""
        is_own = (self.data, self.split) == (trained_on, "test")
        return number if is_own else f"{number}@{self.images}"


def looks_of(job: Job) -> tuple[Look, ...]:
    """The looks that a job asks for, as far as they exist."""
    kinds = dict.fromkeys(kind for name in job.metrics if (kind := kind_of(name)) is not None)
    return tuple(Look(kind, job.test, job.split) for kind in kinds)


def kind_of(statistic: str) -> Kind | None:
    """The look that gives a statistic; None where there is none yet."""
    if statistic == "accuracy":
        return "accuracy"
    return "layers" if statistic in OF_LAYERS else None


def looks_named(names: list[str], data: str) -> tuple[Look, ...]:
    """The looks at statistics that somebody names, of the set that is trained on or of others:
    "accuracy", "dyr", "accuracy@affnist-style/test".

    >>> looks_named(["accuracy", "dyr"], "mnist")[1].name
    'layers@mnist/test'
    """
    found = []
    for name in names:
        statistic, _, images = name.partition("@")
        kind = kind_of(statistic)
        if kind is None:
            known = nearest(statistic, ("accuracy", *OF_LAYERS))
            raise TorchcapsError(f"statistic {statistic!r} cannot be measured in a study; {known}.")
        where, _, split = images.partition("/")
        if images and split not in SPLITS:
            raise TorchcapsError(
                f"{name!r} must name images as SET/SPLIT, for example {statistic}@mnist/test; "
                f"splits are {', '.join(SPLITS)}."
            )
        found.append(Look(kind, where or data, split or "test"))
    return tuple(dict.fromkeys(found))


def look_at(run: Run, look: Look, *, root: str | os.PathLike[str] | None) -> dict[str, float]:
    """The numbers of one look at a finished run."""
    recipe = run.recipe
    if look == Look("accuracy", recipe.data):
        # Looked at once already, at the end of training.
        return {"accuracy": 100 * run.result()["test_accuracy"]}
    trained = open_trained(run.folder)
    data = None if look.data == recipe.data else look.data
    where = root_of(look.data, root)
    images = trained.images(look.split, data=data, root=None if where is None else Path(where))
    if look.kind == "accuracy":
        batch_size = min(BATCH, recipe.batch_size)
        return {"accuracy": 100 * evaluate(trained.model, images, batch_size=batch_size).accuracy}
    return dict(_of_layers(trained, images))


def root_of(data: str, root: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """The folder of a set; None for images that are made."""
    return None if data in SETS and not SETS[data].has_files else root


def _of_layers(trained: Trained, images: Images) -> Iterator[tuple[str, float]]:
    network = partial(trained.model.eval(), keep="last")
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


assert set(get_args(Kind)) == {"accuracy", "layers"}
