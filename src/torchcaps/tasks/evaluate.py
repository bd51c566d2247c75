"""Evaluate a trained network: how many images it gets right, and what it says of each."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from torchcaps._checks import check_count
from torchcaps._paths import path_of
from torchcaps.data import Images
from torchcaps.data.sample import present_classes
from torchcaps.errors import TorchcapsError
from torchcaps.models.images import device_of
from torchcaps.models.own import as_network
from torchcaps.ops import binary_cross_entropy_loss, cross_entropy_loss, margin_loss
from torchcaps.tasks.evaluation import Evaluation
from torchcaps.tasks.figures import write_figures
from torchcaps.tasks.latest import open_latest
from torchcaps.tasks.measurements import (
    Levels,
    check_names,
    measured_by,
    parts_shown,
    seen_through,
    with_parts,
)
from torchcaps.tasks.overlap import seen_by
from torchcaps.tasks.predictions import write_predictions, writer_of
from torchcaps.tasks.progress import progress
from torchcaps.tasks.trained import Own, check_classes, check_fit
from torchcaps.train.answers import is_correct, named_classes
from torchcaps.types import Output

# The result does not depend on it; the memory does.
BATCH = 100


@torch.no_grad()
def evaluate(
    model: nn.Module,
    images: Images,
    *,
    batch_size: int = BATCH,
    levels: Levels | None = None,
    measurements: Sequence[str] = (),
) -> Evaluation:
    """Show every image to the network once. The result does not depend on the batch size.

    Arguments:
        model: the network; it is left in eval mode.
        images: labelled images of its size and classes.
        batch_size: how many images go through at once.
        levels: moves the couplings of the last iteration to a grid from 0 to 1 of so many levels,
            of all layers or of each from below, and makes the parents anew
            [renzulli2025] §3.1.2.
        measurements: names out of `MEASUREMENTS`, taken in the same pass; those of changed images
            look at these too.

    >>> print(evaluate(model, test).text())
    """
    check_count("batch_size", batch_size, of="images")
    model = as_network(model)
    check_fit(model, images)
    looking = measured_by(measurements, model, levels=levels)
    parts = parts_shown(images, measurements)
    network = seen_through(model, levels=levels, names=measurements)
    device = device_of(model)
    model.eval()
    scores, losses, labels = [], [], []
    with progress(f"evaluating on {images.name}", len(images)) as advance:
        for index in torch.arange(len(images)).split(batch_size):
            batch = images.batch(index)
            answer = network(batch.pixels.to(device))
            # The scores alone, and no GPU's.
            out = Output(answer.scores.float().cpu(), answer.scores_are)
            _check_scores(out, images, int(index[0]))
            for each in looking.values():
                each.update(answer, with_parts(batch, parts, index))
            scores.append(out.scores)
            labels.append(batch.labels.cpu())
            loss_is, loss = _loss(out, labels[-1])
            losses.append(loss.double() * len(index))
            advance(len(index))
    all_labels, answered = torch.cat(labels), Output(torch.cat(scores), out.scores_are)
    return Evaluation(
        data=images.name,
        class_names=tuple(images.class_names),
        scores=answered.scores,
        scores_are=answered.scores_are,
        labels=all_labels,
        said=named_classes(answered, all_labels, judged_by=images.judged_by),
        right=is_correct(answered, all_labels, judged_by=images.judged_by),
        judged_by=images.judged_by,
        loss=float(torch.stack(losses).sum() / len(images)),
        loss_is=loss_is,
        levels=levels,
        measured={name: each.result() for name, each in looking.items()},
        files=getattr(images, "files", None),
        groups=getattr(images, "groups", None),
    )


def _check_scores(out: Output, images: Images, first: int) -> None:
    check_classes(out.scores.shape[1], images)
    broken = (~out.scores.isfinite()).any(-1).nonzero()
    if len(broken):
        raise TorchcapsError(
            f"the scores of image {first + int(broken[0])} of {images.name} are not finite, so "
            f"nothing can be said of them; torchcaps doctor tells in which layer it begins."
        )


def _loss(out: Output, labels: Tensor) -> tuple[str, Tensor]:
    """Take the loss that fits the scores, whatever trained the network: runs can be compared."""
    if out.scores_are == "logits" and labels.ndim == 1:
        return "cross-entropy", cross_entropy_loss(out.scores, labels)
    target = labels if labels.ndim == 1 else present_classes(labels, out.scores.shape[1])
    if out.scores_are == "lengths":
        return "margin loss", margin_loss(out.scores, target)
    loss = binary_cross_entropy_loss(out.scores, target, scores_are="independent_logits")
    return "binary cross-entropy", loss


def evaluate_file(
    path: str | os.PathLike[str],
    *,
    data: str | None = None,
    root: Path | None = None,
    split: str = "test",
    predictions: str | os.PathLike[str] | None = None,
    figures: str | os.PathLike[str] | None = None,
    model: Own = None,
    levels: Levels | None = None,
    measurements: Sequence[str] = (),
) -> Evaluation:
    """Evaluate a run on its own data, or a saved network on those named.

    A run that was stopped is evaluated with the weights of its last state, which the result says.
    Test images that are in the training set too are counted, and so are validation images that the
    run was trained on.

    Arguments:
        path: a run folder or a saved network.
        data: a data set by name; None: that of the run.
        root: where the data lies, if the run does not remember it.
        split: "test", "validation" (what the run held out) or "train".
        predictions: a .csv or .jsonl file for what it says of each image; None: nothing is written.
        figures: a folder for pictures, as .svg and .pdf, and their numbers; None: none is drawn.
        model: the class of a network of one's own, or a module of it.
        levels: as in `evaluate`.
        measurements: as in `evaluate`.

    >>> evaluate_file(Path("my-run")).accuracy  # doctest: +SKIP
    """
    check_names(measurements)
    if predictions is not None:
        # It refuses a file that could not be written, before anything is evaluated.
        writer_of(path_of("predictions", predictions))
    if figures is not None:
        path_of("figures", figures).mkdir(parents=True, exist_ok=True)
    trained = open_latest(path, root=root, model=model)
    images = trained.images(split, data=data, root=root)
    # As small as the batches it was trained with, which fitted into memory.
    largest = trained.run.recipe.batch_size if trained.run else BATCH
    found = evaluate(
        trained.model,
        images,
        batch_size=min(BATCH, largest),
        levels=levels,
        measurements=measurements,
    )
    if split == "test":
        is_own = trained.run is not None and data in (None, trained.source(split="test"))
        changed = is_own and not trained.knows(images, "test")
        by, hint = trained.told_of_groups(data=data, root=root)
        found = replace(found, parted=by, suggested=hint, changed=changed)
    if split != "train":
        found = replace(found, seen=seen_by(trained, images, split, data, root))
    found = replace(found, split=split, stopped=trained.stopped, kept=trained.kept)
    if trained.run is not None and trained.stopped is None:
        found = replace(found, evened=trained.run.evened)
    if predictions is not None:
        write_predictions(found, predictions)
    if figures is not None:
        # The temperature is fitted on images held out of training, never on those that are judged.
        own = split == "test" and data is None and trained.run is not None
        fits = own and trained.run is not None and trained.run.recipe.validation_share > 0
        held = evaluate(trained.model, trained.images("validation", root=root)) if fits else None
        write_figures(trained, images, found, held, path_of("figures", figures))
    return found
