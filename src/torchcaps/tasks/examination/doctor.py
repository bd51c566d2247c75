"""The doctor: why does it not learn? Looks at machine, images and network, and says so in words."""

import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchcaps._paths import path_of
from torchcaps.data import Images, sample_of
from torchcaps.data.sample import classes_shown, counts_in_words
from torchcaps.errors import TorchcapsError
from torchcaps.models.own import as_network
from torchcaps.tasks.examination.course import examine_course
from torchcaps.tasks.examination.diagnosis import Diagnosis
from torchcaps.tasks.examination.images import examine_groups, examine_images
from torchcaps.tasks.examination.machine import examine_machine
from torchcaps.tasks.examination.network import examine_network
from torchcaps.tasks.latest import latest_network
from torchcaps.tasks.tables import in_columns
from torchcaps.tasks.trained import Own, check_fit
from torchcaps.train.batches import brought
from torchcaps.train.folder.run import Run
from torchcaps.train.frozen import freeze
from torchcaps.train.images import images_of
from torchcaps.train.recipe import Recipe
from torchcaps.train.start import initial_model, take_frozen
from torchcaps.train.weighing import weighed

# Images shown to the network; a quarter of them is what it should learn by heart.
BATCH = 64
SECONDS = 30.0
COLUMNS = 100


@dataclass(frozen=True)
class Examination:
    """Everything found about one network on one data set."""

    subject: str
    # How many images of each class the network was shown.
    classes: Mapping[str, int]
    findings: tuple[Diagnosis, ...]

    def numbers(self) -> dict[str, Any]:
        """Give the findings, as JSON can hold them."""
        return {
            "subject": self.subject,
            "classes": dict(self.classes),
            "findings": [vars(each) for each in self.findings],
        }

    def text(self) -> str:
        """Say the findings for people, and what to read first."""
        shown = f"The network is shown some of them ({counts_in_words(self.classes)})."
        lines = [self.subject, *textwrap.wrap(shown, COLUMNS), ""]
        rows = [(each.verdict, each.check, each.text) for each in self.findings]
        lines += in_columns(rows, width=COLUMNS)
        of = {
            verdict: [each.check for each in self.findings if each.verdict == verdict]
            for verdict in ("broken", "look")
        }
        marked = [f"{name}: {', '.join(checks)}" for name, checks in of.items() if checks]
        return "\n".join([*lines, "", "; ".join(marked) or "nothing wrong was found"])


def doctor(
    recipe: Recipe,
    *,
    root: Path | None = None,
    seconds: float = SECONDS,
    trunk: Path | None = None,
) -> Examination:
    """Examine a network before it is trained: at its first weights, on its training images.

    Arguments:
        recipe: what is to be trained.
        root: where the data lies, for data sets that are files.
        seconds: how long it may try to learn sixteen images by heart.
        trunk: the weights of its frozen trunk, if it has one.

    >>> print(doctor(recipe).text())
    """
    training = images_of(recipe, "train", root=root)
    network = initial_model(recipe, training)
    take_frozen(network, trunk, has_weights=False)
    return _of_recipe(network, recipe, training, (), root, "before training", seconds)


def doctor_run(
    path: str | os.PathLike[str],
    *,
    root: Path | None = None,
    seconds: float = SECONDS,
    model: Own = None,
) -> Examination:
    """Examine the network of a run folder, finished or not.

    Arguments:
        path: the run folder.
        root: where the data lies, if the run does not remember it.
        seconds: how long it may try to learn sixteen images by heart.
        model: the class of a network of one's own, or a module of it.

    >>> print(doctor_run(Path("my-run")).text())
    """
    path = path_of("path", path)
    if not path.exists():
        raise TorchcapsError(f"there is no run folder at {path}.")
    run = Run(path)
    if not run.recipe_file.is_file():
        raise TorchcapsError(
            f"{path} is no run folder (recipe.json is missing); for a network that was not trained "
            f"yet, give --model and --data."
        )
    network, training, stage = latest_network(run, root, model)
    return _of_recipe(
        network, run.recipe, training, run.metrics(), run.root_or(root), stage, seconds
    )


def _of_recipe(
    network: nn.Module,
    recipe: Recipe,
    training: Images,
    epochs: Sequence[Mapping[str, Any]],
    root: Path | None,
    stage: str,
    seconds: float,
) -> Examination:
    """Examine a network with what only its recipe tells: its epochs so far, and its groups."""
    freeze(network, recipe.freeze)
    found = examine(
        network,
        recipe,
        training,
        lambda: images_of(recipe, "test", root=root),
        stage=stage,
        seconds=seconds,
    )
    course = examine_course(recipe, training, epochs)
    return replace(found, findings=(course, *found.findings, *examine_groups(recipe, root)))


def examine(
    model: nn.Module,
    recipe: Recipe,
    training: Images,
    load_test: Callable[[], Images],
    *,
    stage: str,
    seconds: float = SECONDS,
) -> Examination:
    """Examine a network on its training images.

    Arguments:
        model: the network.
        recipe: how it is trained.
        training: the images to train on.
        load_test: reads the test images; called once.
        stage: "before training", or when it was.
        seconds: how long it may try to learn sixteen images by heart.

    >>> examine(model, recipe, train, lambda: test, stage="before training")
    """
    model = as_network(model)
    check_fit(model, training)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch = brought(training.batch(sample_of(training, BATCH)), torch.device(device))
    findings = [
        *examine_machine(),
        *examine_images(recipe, training, load_test),
        *examine_network(
            model.to(device),
            weighed(recipe, training),
            batch,
            class_names=training.class_names,
            judged_by=training.judged_by,
            trained=stage != "before training",
            seconds=seconds,
        ),
    ]
    options = ", ".join(f"{name}={value}" for name, value in recipe.options.items())
    some = "" if recipe.train_images is None else f"{recipe.train_images:,} of "
    subject = (
        f"{recipe.model}{f' ({options})' if options else ''} on {some}{len(training):,} training "
        f"images of {recipe.data}, {stage}"
    )
    shown = classes_shown(batch.labels, training.class_names)
    return Examination(subject, shown, tuple(findings))
