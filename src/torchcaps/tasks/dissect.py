"""Dissect trained networks: trace them over held-out images, measure, draw, write one page."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from torchcaps import viz
from torchcaps._paths import path_of, write_whole
from torchcaps.analysis import (
    Couplings,
    Fidelity,
    MeasureInvariance,
    causal_use,
    join,
    saliency,
)
from torchcaps.analysis.backtrack import is_chain
from torchcaps.analysis.causal import ALL
from torchcaps.analysis.trace import parents_are_classes
from torchcaps.data import Batch, Images, sample_of
from torchcaps.data.sample import classes_shown, counts_in_words
from torchcaps.data.some import Some
from torchcaps.errors import TorchcapsError, short
from torchcaps.models.images import device_of
from torchcaps.models.own import as_network
from torchcaps.prune import sparsity
from torchcaps.report import Dissection, Picture, Sentence, render
from torchcaps.report.verdict import About
from torchcaps.tasks.changes import rotation
from torchcaps.tasks.evaluate import BATCH, evaluate
from torchcaps.tasks.trained import (
    Own,
    check_classes,
    check_fit,
    check_image,
    label_of,
    open_trained,
)
from torchcaps.train.answers import CRITERIA, is_correct
from torchcaps.train.folder.environment import environment
from torchcaps.train.folder.run import Run
from torchcaps.train.frozen import freeze
from torchcaps.train.optimiser import OPTIMISERS
from torchcaps.types import Output, Trace
from torchcaps.viz.layered import MOST_SHOWN, leads_on

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# How many images are turned and given other couplings, and how many are drawn.
LOOKED, SHOWN = 200, 3
# Rows and columns of the patches that are hidden.
PATCHES = 6
TURNS = {f"rotation {each}°": rotation(each) for each in (10, 30, 60, 90, 180)}


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
    model = as_network(model)
    seen = list(_traced(model, images, _chosen(images, count)))
    right = sum(
        int(is_correct(out, batch.labels.to(out.scores.device), judged_by=images.judged_by).sum())
        for out, batch in seen
    )
    return join(out.trace for out, _ in seen), right


def _chosen(images: Images, count: int | None) -> Tensor:
    return torch.arange(len(images)) if count is None else sample_of(images, count)


@torch.no_grad()
def _traced(model: nn.Module, images: Images, index: Tensor) -> Iterator[tuple[Output, Batch]]:
    check_fit(model, images)
    model.eval()
    for few in index.split(BATCH):
        batch = images.batch(few)
        out = model(batch.pixels.to(device_of(model)), keep="last")
        check_classes(out.scores.shape[1], images)
        yield out, batch


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
    if not hasattr(images, "class_names"):
        raise TorchcapsError(
            f"dissect takes labelled images, what data.load returns, but got {short(images)}."
        )
    check_image("example", example, images)
    model, index = as_network(model), _chosen(images, count)
    # The sample may lack the images that are shown, so they are looked at for the pictures.
    ((out, batch),) = _traced(
        model, images, torch.arange(example, min(example + SHOWN, len(images)))
    )
    # Trees are counted of images that show one object, where there is a parent for each class.
    has_classes = bool(out.trace) and parents_are_classes(out.trace, out.scores.shape[1])
    is_tree = has_classes and batch.labels.ndim == 1
    inside = ("dynamics", "activity") if out.trace else ()
    trees = ("keys", "couplings") if is_tree else ()
    names = tuple(dict.fromkeys((*measurements, *inside, *trees)))
    judged = evaluate(model, Some(images, index), measurements=names)
    hidden, maps = _hidden(model, out, batch.pixels)
    measured: Any = judged.measured
    shown = classes_shown(judged.labels, images.class_names)
    about = {
        "parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        "images": f"{len(index):,} of {len(images):,} of {images.name} ({counts_in_words(shown)})",
        "right where": CRITERIA[images.judged_by],
    }
    zeros = None
    with suppress(TorchcapsError):
        zeros = sparsity(model).share or None
    found = Dissection(
        label=label,
        facts={**about, **(facts or {})},
        right=int(judged.right.sum()),
        images=len(index),
        classes=shown,
        dynamics=measured.get("dynamics"),
        activity=measured.get("activity"),
        pictures=(),
        measured={name: measured[name] for name in measurements},
        keys=measured["keys"] if is_tree else None,
        zeros=zeros,
        hidden=hidden,
        commonest=judged.commonest,
        constant=judged.constant,
        measures=judged.measures.numbers(),
        measure_lines=judged.measures.lines(),
    )
    if out.trace:
        few = index if len(index) <= LOOKED else sample_of(images, LOOKED)
        turned = MeasureInvariance(partial(_traced_pixels, model), TURNS)
        for answer, some in _traced(model, images, few):
            turned.update(answer, some)
        found, batch_few = replace(found, turned=turned.result()), images.batch(few)
        # Not every network takes other couplings.
        with suppress(TorchcapsError):
            pixels, labels = batch_few.pixels.to(device_of(model)), batch_few.labels
            use = causal_use(model, pixels, labels, layers=[ALL], batch_size=BATCH)
            found = replace(found, use=use)
    couplings = measured["couplings"] if is_tree else None
    pictures = [
        *pictures_of(found, couplings, out, batch, images.class_names, example=example),
        Picture("look", f"Images {example} and after", viz.draw_saliency(batch.pixels, maps)),
    ]
    return replace(found, pictures=pictures)


def _traced_pixels(model: nn.Module, pixels: Tensor) -> Output:
    out: Output = model(pixels.to(device_of(model)), keep="last")
    return out


@torch.no_grad()
def _hidden(model: nn.Module, out: Output, pixels: Tensor) -> tuple[Sentence, dict[str, Tensor]]:
    """Hide patch after patch of each image: say how many change the answer, and map where."""
    answers = out.scores.argmax(-1).cpu()
    size = pixels.shape[-2:]
    rows, columns = (torch.linspace(0, side, PATCHES + 1).round().int().tolist() for side in size)
    lost, others = torch.zeros(len(pixels), PATCHES, PATCHES), torch.zeros(len(pixels))
    for y, x in product(range(PATCHES), range(PATCHES)):
        covered = pixels.clone()
        mean = pixels.mean((-2, -1), keepdim=True)
        covered[..., rows[y] : rows[y + 1], columns[x] : columns[x + 1]] = mean
        scores = _traced_pixels(model, covered).scores.cpu()
        lost[:, y, x] = (out.scores.cpu() - scores).gather(1, answers[:, None])[:, 0]
        others += scores.argmax(-1) != answers
    counts = [f"{count:.0f}" for count in others.tolist()]
    listed = " and ".join(filter(None, [", ".join(counts[:-1]), counts[-1]]))
    text = (
        f"Hide one of {PATCHES**2} patches: image by image, the answer changes at {listed} of them."
    )
    maps = {"hiding a patch": interpolate(lost.clamp(min=0)[:, None], size=size)[:, 0]}
    # Where children of the classes have no place in the image, there is no map of couplings.
    with suppress(TorchcapsError):
        n = out.scores.shape[1]
        whole = (rows[-1], columns[-1])
        maps["couplings"] = saliency(out.trace, answers, n_classes=n, size=whole)
    return Sentence("look", text, None), maps


def pictures_of(
    found: Dissection,
    couplings: Couplings | None,
    out: Output,
    batch: Batch,
    names: Sequence[str],
    *,
    example: int,
    **more: Any,
) -> list[Picture]:
    """Draw what was measured, and the tree of the first image of a batch, with `more` for it."""
    trace, activity, dynamics = out.trace, found.activity, found.dynamics
    if activity is None or dynamics is None:
        return []
    pictures = []

    def add(about: About, title: str, figure: "Figure", note: str = "") -> None:
        pictures.append(Picture(about, title, figure, note))

    # Capsules of the last layer are classes where there is one for each.
    named = tuple(names) if activity.layers[-1].n == len(names) else ()
    is_dense = all(layer.window is None for layer in trace) and leads_on(trace)
    grid = trace[0].child_grid or (1, 1, 1)
    is_map = grid[0] * grid[1] > 1 and activity.layers[0].n > MOST_SHOWN
    draw = viz.draw_parse_tree if is_dense and not is_map else viz.draw_grids
    truth = " and ".join(names[each] for each in batch.labels[0].view(-1).unique().tolist())
    title = f"One image and its tree: image {example}"
    tree = draw(trace, batch.pixels[0], class_names=named, **more)
    add("tree", title, tree, f"class {truth}")
    if is_dense:
        add("tree", "All images: mean couplings", viz.draw_mean_couplings(dynamics, activity))
    if couplings is not None and found.keys is not None:
        histogram = viz.draw_couplings_histogram((found.label, couplings))
        add("choice", "Couplings of all images", histogram)
        add("count", "Trees of each predicted class", viz.draw_keys(found.keys, class_names=names))
    add("life", "Lengths of all capsules", viz.draw_activity(activity))
    if found.turned is not None:
        add("turn", "Lengths before and after a turn", viz.draw_invariance(found.turned))
    if draw is viz.draw_parse_tree and is_chain(trace):
        title = f"What leads to the answer: image {example}"
        add("look", title, viz.draw_backtracked(trace, class_names=named))
    if found.use is not None:
        add("use", "Accuracy with other couplings", viz.draw_causal_use(found.use))
    fidelity = found.measured.get("fidelity")
    if isinstance(fidelity, Fidelity) and fidelity.edges is not None:
        ends = fidelity.edges_interval or (None, None)
        rows = [("edges of its tree", fidelity.edges, *ends, ())]
        line = (fidelity.undiscerning or 0, "every part, strays too, to the class")
        label, span = "0 is chance, 1 the true tree", (-0.1, 1.05)
        figure = viz.draw_intervals(rows, label=label, line=line, note="", span=span)
        add("truth", "Edges against the true tree", figure)
    return pictures


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
        images: how many to look at, drawn with each class's share; roughly so of sets whose images
            are made when asked for.
        example: the number of the image whose tree is drawn.
        model: the class of a network of one's own, or a module of it.
        measurements: names out of `--measure`, taken in the same pass.

    >>> write_report(dissect_files([Path("my-run")]), Path("report.html"))  # doctest: +SKIP
    """
    found: list[Dissection] = []
    for path in [path_of("paths", each) for each in paths]:
        network = open_trained(path, model=model)
        if network.run is not None and not isinstance(model, nn.Module):
            # Weights that were not trained were not pruned: their zeros must not be counted.
            freeze(network.model, network.run.recipe.freeze)
        test = network.images("test", data=data, root=root)
        label = label_of(path, [each.label for each in found])
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
    # A folder of pictures has no name but its own.
    root = run.root if recipe.data == "folder" else None
    data = recipe.data if root is None else f"the folder {root.name}"
    # What changes which weights come out, and is left alone by most recipes.
    more = {"augment": recipe.augment, "patience": recipe.patience}
    more["keep"] = None if recipe.keep == "last" else recipe.keep
    more["with"] = run.evened
    options = ", ".join(f"{name}={value}" for name, value in recipe.options.items())
    return {
        "network": f"{recipe.model}{f' ({options})' if options else ''}",
        "trained on": f"{data}, {run.result().get('training_images', 0):,} images, "
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


def _epochs(run: Run) -> str:
    """Say how many epochs were trained, which may be fewer than the recipe allows."""
    asked, trained = run.recipe.epochs, run.epochs_trained
    of_all = f"{asked} epoch{'' if asked == 1 else 's'}"
    return of_all if trained == asked else f"stopped after {trained} of {of_all}"
