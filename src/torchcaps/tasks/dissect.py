"""Dissect trained networks: trace them over held-out images, measure, draw, write one page."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn

from torchcaps.analysis import (
    Activity,
    RoutingDynamics,
    capsule_activity,
    join,
    routing_dynamics,
)
from torchcaps.data import Images
from torchcaps.errors import TorchcapsError
from torchcaps.report import Dissection, Picture, render
from torchcaps.tasks.trained import open_trained
from torchcaps.train.answers import CRITERIA, is_correct
from torchcaps.train.run import Run, environment, write_whole
from torchcaps.types import Trace
from torchcaps.viz import draw_activity, draw_mean_couplings, draw_parse_tree

__all__ = ["dissect", "dissect_files", "facts_of", "trace_images", "write_report"]

# Few enough that the couplings of a thousand primary capsules fit in memory.
BATCH = 100


@torch.no_grad()
def trace_images(
    model: nn.Module, images: Images, *, first: int | None = None
) -> tuple[Trace, int]:
    """The trace of a network over images, or the `first` so many, and how many of them it
    classified right.
    """
    expected = getattr(model, "image", images.image_shape)
    if expected != images.image_shape:
        raise TorchcapsError(
            f"the network takes images of (channels, height, width) = {expected}, but "
            f"{images.name} has {images.image_shape}; dissect it on the data it was trained on."
        )
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    model.eval()
    traces, right = [], 0
    count = len(images) if first is None else min(first, len(images))
    for index in torch.arange(count).split(BATCH):
        batch = images.batch(index)
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
    return join(traces), right


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
    first: int | None = None,
    example: int = 0,
    facts: Mapping[str, str] | None = None,
) -> Dissection:
    """Measure and draw one network, over all images or the `first` so many. `example` is the image
    whose tree is drawn; the first, unless told otherwise, so that nobody picks a pretty one.
    """
    count = len(images) if first is None else min(first, len(images))
    if not 0 <= example < count:
        raise TorchcapsError(f"example must be one of the {count} images, but is {example}.")
    trace, right = trace_images(model, images, first=count)
    size = sum(parameter.numel() for parameter in model.parameters())
    about = {"parameters": f"{size:,}", "images": f"{count:,} of {images.name}"}
    about["right where"] = CRITERIA[images.judged_by]
    dynamics = routing_dynamics(trace) if trace else None
    activity = capsule_activity(trace) if trace else None
    pictures: list[Picture] = []
    if dynamics is not None and activity is not None:
        names = images.class_names
        shown = images.batch(slice(example, example + 1))
        truth = " and ".join(names[label] for label in shown.labels[0].view(-1).unique().tolist())
        tree = draw_parse_tree(trace, shown.pixels[0], index=example, class_names=names)
        pictures = [
            _picture_of_tree(tree, label, f"image {example}, {truth}", truth),
            *_pictures_of_all(dynamics, activity, label, count),
        ]
    return Dissection(
        label=label,
        facts={**about, **(facts or {})},
        right=right,
        images=count,
        n_classes=len(images.class_names),
        dynamics=dynamics,
        activity=activity,
        pictures=pictures,
    )


def _picture_of_tree(tree: Figure, label: str, title: str, truth: str) -> Picture:
    return Picture(
        f"One image and its tree: {title}",
        "Bars are lengths of capsules, lines are couplings. In a tree, every capsule would have "
        "one dark line upwards.",
        f"Couplings of {label} for one image of class {truth}, layer by layer.",
        tree,
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
) -> list[Dissection]:
    """Dissect runs on test images of their own data, saved networks on those of `data`."""
    found: list[Dissection] = []
    for path in paths:
        network = open_trained(path)
        test = network.images("test", data=data, root=root)
        label = path.stem if network.run is None else path.resolve().name
        if label in {each.label for each in found}:
            label = str(path)
        facts = {"network": str(path)} if network.run is None else facts_of(network.run)
        found.append(
            dissect(network.model, test, label=label, first=images, example=example, facts=facts)
        )
    return found


def facts_of(run: Run) -> dict[str, str]:
    """How a run was trained, in words."""
    recipe, rows = run.recipe, run.metrics()
    options = ", ".join(f"{name}={value}" for name, value in recipe.options.items())
    return {
        "network": f"{recipe.model}{f' ({options})' if options else ''}",
        "trained on": f"{recipe.data}, {run.result().get('training_images', 0):,} images, "
        f"{recipe.epochs} epochs, Adam {recipe.learning_rate:g}, batch {recipe.batch_size}",
        "seed": str(recipe.seed),
        "training time": f"{sum(row['seconds'] for row in rows):.0f} s",
        "recipe": recipe.digest(),
    }
