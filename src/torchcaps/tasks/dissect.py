"""Dissect trained networks: trace them over held-out images, measure, draw, write one page."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps._paths import path_of, write_whole
from torchcaps.analysis import (
    Activity,
    MeasureActivity,
    MeasureDynamics,
    RoutingDynamics,
    join,
)
from torchcaps.analysis.backtrack import is_chain
from torchcaps.analysis.by_name import keep_for
from torchcaps.analysis.shares import commonest, constant_answer
from torchcaps.data import Batch, Images, sample_of
from torchcaps.data.sample import classes_shown, counts_in_words
from torchcaps.errors import TorchcapsError, short
from torchcaps.models.images import device_of
from torchcaps.models.own import as_network
from torchcaps.report import Dissection, Picture, Trees, render
from torchcaps.tasks.measurements import Shown, measured_by, parts_shown, with_parts
from torchcaps.tasks.parse_trees import MeasureTrees
from torchcaps.tasks.trained import Own, check_classes, check_fit, check_image, open_trained
from torchcaps.train.answers import CRITERIA, named_classes, present_classes
from torchcaps.train.class_measures import class_measures
from torchcaps.train.folder.environment import environment
from torchcaps.train.folder.run import Run
from torchcaps.train.frozen import freeze
from torchcaps.train.optimiser import OPTIMISERS
from torchcaps.types import Output, ScoresAre, Trace
from torchcaps.viz import draw_activity, draw_backtracked, draw_mean_couplings, draw_parse_tree
from torchcaps.viz.layered import leads_on

# Few enough that the couplings of a thousand primary capsules fit in memory.
BATCH = 100


def trace_images(
    model: nn.Module, images: Images, *, count: int | None = None
) -> tuple[Trace, int]:
    """Trace a network over images, and count how many of them it classified right.

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


class Seen(NamedTuple):
    """A batch, what a network says of it, how many of the answers are right, and of how many images
    each class is named."""

    out: Output
    batch: Batch | Shown
    right: int
    named: Tensor


@torch.no_grad()
def _looked_at(
    model: nn.Module, images: Images, index: Tensor, *, measurements: Sequence[str] = ()
) -> Iterator[Seen]:
    """Look at the images `index`, batch after batch, so that a measurement needs no trace of
    all."""
    model = as_network(model)
    check_fit(model, images)
    device = device_of(model)
    model.eval()
    keep, parts = keep_for(measurements), parts_shown(images, measurements)
    for few in index.split(BATCH):
        batch = images.batch(few)
        out = model(batch.pixels.to(device), keep=keep)
        check_classes(out.scores.shape[1], images)
        named = named_classes(out, batch.labels, judged_by=images.judged_by).cpu()
        right = (named == present_classes(batch.labels.cpu(), named.shape[-1])).all(-1)
        yield Seen(out, with_parts(batch, parts, few), int(right.sum()), named.sum(0))


def _traced(model: nn.Module, images: Images, index: Tensor) -> tuple[Trace, int, Tensor]:
    """Trace the images `index`; give how many of them are right, and their labels, too."""
    seen = list(_looked_at(model, images, index))
    labels = torch.cat([each.batch.labels for each in seen])
    return join(each.out.trace for each in seen), sum(each.right for each in seen), labels


def dissect(
    model: nn.Module,
    images: Images,
    *,
    label: str,
    count: int | None = None,
    example: int = 0,
    facts: Mapping[str, str] | None = None,
    measurements: Sequence[str] = (),
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
        measurements: names out of `tasks.measurements.MEASUREMENTS`, for the numbers; routing
            dynamics and activity are measured in any case.

    >>> write_report([dissect(model, test, label="mine")], Path("report.html"))
    """
    _check_shown(images, example)
    index = torch.arange(len(images)) if count is None else sample_of(images, count)
    model = as_network(model)
    dynamics, activity, trees = MeasureDynamics(), MeasureActivity(), MeasureTrees()
    more, labels, scores, named, right = measured_by(measurements, model), [], [], [], 0
    trace: Trace = ()
    for seen in _looked_at(model, images, index, measurements=measurements):
        trace, right = seen.out.trace, right + seen.right
        labels.append(seen.batch.labels)
        scores.append(seen.out.scores.float().cpu())
        named.append(seen.named)
        for each in [*more.values(), *((dynamics, activity, trees) if trace else ())]:
            each.update(seen.out, seen.batch)
    names, all_labels = images.class_names, torch.cat(labels)
    shown = classes_shown(all_labels, names)
    about = _about(model, images, shown, len(index))
    pictures: list[Picture] = []
    if _is_dense(trace) and not leads_on(trace):
        about["trees"] = "not drawn, since the layers do not lead to each other"
    elif _is_dense(trace):
        pictures = [
            _picture_of_tree(model, images, example, label),
            *_pictures_of_all(dynamics.result(), activity.result(), label, len(index)),
        ]
    return Dissection(
        label=label,
        facts={**about, **(facts or {})},
        right=right,
        images=len(index),
        classes=shown,
        dynamics=dynamics.result() if trace else None,
        activity=activity.result() if trace else None,
        pictures=pictures,
        measured={name: each.result() for name, each in more.items()},
        trees=_with_graph(trees.result(model, names, label), model, images, example),
        commonest=commonest(all_labels, names),
        constant=constant_answer(torch.stack(named).sum(0), len(index), names),
        **_of_classes(scores, seen.out.scores_are, all_labels, images, index),
    )


def _of_classes(
    scores: list[Tensor], scores_are: ScoresAre, labels: Tensor, images: Images, index: Tensor
) -> dict[str, Any]:
    """Take the measures in which every class counts the same, as a page takes them."""
    groups: tuple[str, ...] | None = getattr(images, "groups", None)
    found = class_measures(
        Output(torch.cat(scores), scores_are),
        labels.cpu(),
        images.class_names,
        judged_by=images.judged_by,
        groups=None if groups is None else [groups[at] for at in index.tolist()],
    )
    return {"measures": found.numbers(), "measure_lines": found.lines()}


def _about(
    model: nn.Module, images: Images, shown: Mapping[str, int], count: int
) -> dict[str, str]:
    return {
        "parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        "images": f"{count:,} of {len(images):,} of {images.name} ({counts_in_words(shown)})",
        "right where": CRITERIA[images.judged_by],
    }


def _is_dense(trace: Trace) -> bool:
    """Say whether there are layers, and none has windows, of which no picture is drawn."""
    return bool(trace) and all(layer.window is None for layer in trace)


def _check_shown(images: Images, example: int) -> None:
    if not hasattr(images, "class_names"):
        raise TorchcapsError(
            f"dissect takes labelled images, what data.load returns, but got {short(images)}."
        )
    check_image("example", example, images)


def _picture_of_tree(model: nn.Module, images: Images, example: int, label: str) -> Picture:
    # The sample may lack this image, so its trace is made for the picture.
    trace, _, labels = _traced(model, images, torch.tensor([example]))
    names = images.class_names
    # Capsules of the last layer are classes where there is one for each.
    parents = trace[-1].routed.parents.pose.shape[-2]
    truth = " and ".join(names[each] for each in labels[0].view(-1).unique().tolist())
    pixels = images.batch(torch.tensor([example])).pixels[0]
    return Picture(
        f"One image and its tree: image {example}",
        "Bars are lengths of capsules, lines are couplings. In a tree, every capsule would have "
        "one dark line upwards.",
        f"Couplings of {label} for one image of class {truth}, layer by layer.",
        draw_parse_tree(trace, pixels, class_names=names if parents == len(names) else ()),
        f"class {truth}",
    )


def _with_graph(
    trees: Trees | None, model: nn.Module, images: Images, example: int
) -> Trees | None:
    """Add the tree of one image, where all layers are dense and each leads to the next."""
    if trees is None:
        return None
    (seen,) = _looked_at(model, images, torch.tensor([example]))
    trace, predicted = seen.out.trace, int(seen.out.scores[0].argmax())
    if not _is_dense(trace) or not is_chain(trace):
        return trees
    picture = Picture(
        f"What leads to the answer: image {example}",
        "Capsules from which couplings stronger than an even split lead up to the predicted class; "
        "all others are left out.",
        f"The tree that leads to the class predicted for image {example}.",
        draw_backtracked(trace, predicted=predicted, class_names=images.class_names),
    )
    return replace(trees, pictures=[*trees.pictures, picture])


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


def page_at(path: str | os.PathLike[str]) -> Path:
    """Check where a page may be written: a browser shows another ending as text."""
    page = path_of("path", path)
    if page.is_dir():
        raise TorchcapsError(f"{page} is a folder; name the page itself, as report.html.")
    if page.suffix.lower() not in (".html", ".htm"):
        raise TorchcapsError(f"the page must end in .html, but is {page}.")
    return page


def write_report(
    dissections: Sequence[Dissection],
    path: str | os.PathLike[str],
    *,
    title: str = "What the network does inside",
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write the page. Its folder is made when it is missing.

    Arguments:
        dissections: one a network, as `dissect` makes them.
        path: the file of the page, ending in .html.
        title: its heading.
        more: what else its foot should say, by name.

    >>> write_report([dissect(model, test, label="mine")], Path("report.html"))
    """
    path = page_at(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    provenance = {**environment(), **(more or {})}
    write_whole(path, render(dissections, title=title, provenance=provenance))


def dissect_files(
    paths: Sequence[str | os.PathLike[str]],
    *,
    data: str | None = None,
    root: str | os.PathLike[str] | None = None,
    images: int = 1000,
    example: int = 0,
    model: Own = None,
    measurements: Sequence[str] = (),
) -> list[Dissection]:
    """Dissect runs on test images of their own data, saved networks on those of `data`.

    Each is measured over a sample of `images`, the same one for all networks of one data set.

    Arguments:
        paths: run folders or saved networks.
        data: a data set by name; None: that of each run.
        root: where the data lies, if the run does not remember it.
        images: how many to look at, drawn with each class's share, of made sets about so.
        example: the number of the image whose tree is drawn.
        model: the class of a network of one's own, or a module of it.
        measurements: names out of `--measure`, taken in the same pass.

    >>> write_report(dissect_files([Path("my-run")]), Path("report.html"))  # doctest: +SKIP
    """
    found: list[Dissection] = []
    for path in [path_of("paths", each) for each in paths]:
        network = open_trained(path, model=model)
        if network.run is not None and not isinstance(model, nn.Module):
            # What was not trained was not pruned, and no zero of it is counted.
            freeze(network.model, network.run.recipe.freeze)
        test = network.images("test", data=data, root=root)
        label = path.stem if network.run is None else path.resolve().name
        if label in {each.label for each in found}:
            label = str(path)
        facts = {"network": str(path)} if network.run is None else facts_of(network.run)
        found.append(
            dissect(
                network.model,
                test,
                label=label,
                count=images,
                example=example,
                facts=facts,
                measurements=measurements,
            )
        )
    return found


def facts_of(run: Run) -> dict[str, str]:
    """Say how a run was trained."""
    recipe, rows = run.recipe, run.metrics()
    groups = run.result().get("groups", {})
    # What changes which weights come out, and is left alone by most recipes.
    more = {"augment": recipe.augment, "patience": recipe.patience}
    more["keep"] = None if recipe.keep == "last" else recipe.keep
    more["with"] = run.evened
    options = ", ".join(f"{name}={value}" for name, value in recipe.options.items())
    return {
        "network": f"{recipe.model}{f' ({options})' if options else ''}",
        "trained on": f"{_images_of(run)}, {run.result().get('training_images', 0):,} images, "
        f"{_epochs(run)}, {OPTIMISERS[recipe.optimiser][0]} {recipe.learning_rate:g}, "
        f"batch {recipe.batch_size}"
        + "".join(f", {name} {value}" for name, value in more.items() if value is not None),
        **({} if run.kept is None else {"weights": f"of {run.kept}"}),
        **({"groups": groups["parted"]} if "parted" in groups else {}),
        **({"protocol": recipe.protocol} if recipe.protocol else {}),
        **({"departures": "; ".join(departs)} if (departs := recipe.departures()) else {}),
        "seed": str(recipe.seed),
        "training time": f"{sum(row['seconds'] for row in rows):.0f} s",
        "recipe": recipe.digest(),
    }


def _images_of(run: Run) -> str:
    """Name the data of a run; a folder of pictures has none but its own."""
    root = run.root if run.recipe.data == "folder" else None
    return run.recipe.data if root is None else f"the folder {root.name}"


def _epochs(run: Run) -> str:
    """Say how many epochs were trained, which may be fewer than the recipe allows."""
    asked, trained = run.recipe.epochs, run.epochs_trained
    of_all = f"{asked} epoch{'' if asked == 1 else 's'}"
    return of_all if trained == asked else f"stopped after {trained} of {of_all}"
