"""Dissect trained networks: trace them over held-out images, measure, draw, write one page."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.analysis import (
    Activity,
    RoutingDynamics,
    capsule_activity,
    join,
    routing_dynamics,
)
from torchcaps.data import Images, sample_of
from torchcaps.data.sample import classes_shown, counts_in_words
from torchcaps.errors import TorchcapsError
from torchcaps.models.own import as_network
from torchcaps.report import Dissection, Picture, render
from torchcaps.tasks.trained import Own, open_trained
from torchcaps.train.answers import CRITERIA, is_correct
from torchcaps.train.run import Run, environment, write_whole
from torchcaps.types import Trace
from torchcaps.viz import draw_activity, draw_mean_couplings, draw_parse_tree

__all__ = ["dissect", "dissect_files", "facts_of", "trace_images", "write_report"]

OPTIMISERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
# Few enough that the couplings of a thousand primary capsules fit in memory.
BATCH = 100


def trace_images(
    model: nn.Module, images: Images, *, count: int | None = None
) -> tuple[Trace, int]:
    """The trace of a network over images, and how many of them it classified right.

    Arguments:
        model: the network; it is left in eval mode.
        images: labelled images of its size and classes.
        count: None traces all images in their order; a number traces those of
            `data.sample_of(images, count)`, in that order.

    >>> trace, right = tc.tasks.trace_images(model, test, count=200)
    """
    index = torch.arange(len(images)) if count is None else sample_of(images, count)
    trace, right, _ = _traced(model, images, index)
    return trace, right


@torch.no_grad()
def _traced(model: nn.Module, images: Images, index: Tensor) -> tuple[Trace, int, Tensor]:
    """The trace over the images `index`, how many of them are right, and their labels."""
    model = as_network(model)
    expected = getattr(model, "image", images.image_shape)
    if expected != images.image_shape:
        raise TorchcapsError(
            f"the network takes images of (channels, height, width) = {expected}, but "
            f"{images.name} has {images.image_shape}; dissect it on the data it was trained on."
        )
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    model.eval()
    traces, labels, right = [], [], 0
    for few in index.split(BATCH):
        batch = images.batch(few)
        out = model(batch.pixels.to(device), keep="last")
        if out.scores.shape[1] != len(images.class_names):
            raise TorchcapsError(
                f"the network tells {out.scores.shape[1]} classes apart, but {images.name} has "
                f"{len(images.class_names)}; dissect it on the data it was trained on."
            )
        _refuse_windows(out.trace)
        found = is_correct(out, batch.labels.to(device), judged_by=images.judged_by)
        right += int(found.sum())
        traces.append(out.trace)
        labels.append(batch.labels)
    return join(traces), right, torch.cat(labels)


def _refuse_windows(trace: Trace) -> None:
    windows = [layer.name for layer in trace if layer.window is not None]
    if windows:
        raise TorchcapsError(
            f"dissect looks at layers where every child votes for every parent, and "
            f"{', '.join(windows)} {'is' if len(windows) == 1 else 'are'} convolutional; its "
            f"pictures cannot show windows yet. The couplings are in model(images, "
            f'keep="last").trace.'
        )


def dissect(
    model: nn.Module,
    images: Images,
    *,
    label: str,
    count: int | None = None,
    example: int = 0,
    facts: Mapping[str, str] | None = None,
) -> Dissection:
    """Measure and draw one network.

    Arguments:
        model: the network; it is left in eval mode.
        images: labelled images of its size and classes.
        label: the name of the network on the page.
        count: how many images to measure over, a sample by `data.sample_of`; None takes all.
        example: the number of the image, among all, whose tree is drawn. It is the first unless
            another is named, so that nobody picks a pretty one.
        facts: more to say of the network, name by name.
    """
    if not 0 <= example < len(images):
        raise TorchcapsError(f"example must be one of the {len(images)} images, but is {example}.")
    index = torch.arange(len(images)) if count is None else sample_of(images, count)
    trace, right, labels = _traced(model, images, index)
    shown = classes_shown(labels, images.class_names)
    size = sum(parameter.numel() for parameter in model.parameters())
    about = {
        "parameters": f"{size:,}",
        "images": f"{len(index):,} of {len(images):,} of {images.name} ({counts_in_words(shown)})",
        "right where": CRITERIA[images.judged_by],
    }
    dynamics = routing_dynamics(trace) if trace else None
    activity = capsule_activity(trace) if trace else None
    pictures: list[Picture] = []
    if dynamics is not None and activity is not None:
        pictures = [
            _picture_of_tree(model, images, example, label),
            *_pictures_of_all(dynamics, activity, label, len(index)),
        ]
    return Dissection(
        label=label,
        facts={**about, **(facts or {})},
        right=right,
        images=len(index),
        classes=shown,
        dynamics=dynamics,
        activity=activity,
        pictures=pictures,
    )


def _picture_of_tree(model: nn.Module, images: Images, example: int, label: str) -> Picture:
    # The sample may lack this image, so its trace is made for the picture.
    trace, _, labels = _traced(model, images, torch.tensor([example]))
    names = images.class_names
    truth = " and ".join(names[each] for each in labels[0].view(-1).unique().tolist())
    pixels = images.batch(torch.tensor([example])).pixels[0]
    return Picture(
        f"One image and its tree: image {example}, {truth}",
        "Bars are lengths of capsules, lines are couplings. In a tree, every capsule would have "
        "one dark line upwards.",
        f"Couplings of {label} for one image of class {truth}, layer by layer.",
        draw_parse_tree(trace, pixels, class_names=names),
    )


def _pictures_of_all(
    dynamics: RoutingDynamics, activity: Activity, label: str, count: int
) -> list[Picture]:
    return [
        Picture(
            "All images: mean couplings",
            "Lines are warm where a coupling changes from image to image, cold where it stays. "
            "Ticks on the bars are one standard deviation; red crosses are dead capsules.",
            f"Mean couplings and lengths of {label} over {count} images.",
            draw_mean_couplings(dynamics, activity),
        ),
        Picture(
            "All images: which capsules answer",
            "One mark a capsule. Right of the dashed line it counts as active.",
            f"Mean length of every capsule of {label}, layer by layer.",
            draw_activity(activity),
        ),
    ]


def write_report(
    dissections: Sequence[Dissection],
    path: Path,
    *,
    title: str = "What the network does inside",
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write the page. Its folder is made when it is missing."""
    if path.is_dir():
        raise TorchcapsError(f"{path} is a folder; name the page itself, as report.html.")
    path.parent.mkdir(parents=True, exist_ok=True)
    provenance = {**environment(), **(more or {})}
    write_whole(path, render(dissections, title=title, provenance=provenance))


def dissect_files(
    paths: Sequence[Path],
    *,
    data: str | None = None,
    root: str | os.PathLike[str] | None = None,
    images: int = 1000,
    example: int = 0,
    model: Own = None,
) -> list[Dissection]:
    """Dissect runs on test images of their own data, saved networks on those of `data`.

    Each is measured over a sample of `images`, the same one for all networks of one data set.
    """
    found: list[Dissection] = []
    for path in paths:
        network = open_trained(path, model=model)
        test = network.images("test", data=data, root=root)
        label = path.stem if network.run is None else path.resolve().name
        if label in {each.label for each in found}:
            label = str(path)
        facts = {"network": str(path)} if network.run is None else facts_of(network.run)
        found.append(
            dissect(network.model, test, label=label, count=images, example=example, facts=facts)
        )
    return found


def facts_of(run: Run) -> dict[str, str]:
    """How a run was trained, in words."""
    recipe, rows = run.recipe, run.metrics()
    options = ", ".join(f"{name}={value}" for name, value in recipe.options.items())
    return {
        "network": f"{recipe.model}{f' ({options})' if options else ''}",
        "trained on": f"{recipe.data}, {run.result().get('training_images', 0):,} images, "
        f"{_epochs(run)}, {OPTIMISERS[recipe.optimiser]} {recipe.learning_rate:g}, "
        f"batch {recipe.batch_size}",
        **({"protocol": recipe.protocol} if recipe.protocol else {}),
        **({"departures": "; ".join(departs)} if (departs := recipe.departures()) else {}),
        "seed": str(recipe.seed),
        "training time": f"{sum(row['seconds'] for row in rows):.0f} s",
        "recipe": recipe.digest(),
    }


def _epochs(run: Run) -> str:
    """How many epochs were trained, which may be fewer than the recipe allows."""
    asked = run.recipe.epochs
    trained = max((row["epoch"] for row in run.metrics()), default=asked)
    return f"{asked} epochs" if trained == asked else f"stopped after {trained} of {asked} epochs"
