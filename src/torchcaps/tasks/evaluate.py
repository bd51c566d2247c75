"""Evaluate a trained network: how many images it gets right, and what it says of each."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps._counts import check_count
from torchcaps._paths import path_of
from torchcaps.analysis.result import Result
from torchcaps.analysis.shares import (
    Commonest,
    commonest,
    constant_answer,
    says_always,
    wilson,
)
from torchcaps.data import Images, JudgedBy
from torchcaps.data.read.grouping import Suggested
from torchcaps.errors import TorchcapsError
from torchcaps.models.own import as_network
from torchcaps.ops import binary_cross_entropy_loss, cross_entropy_loss, margin_loss
from torchcaps.tasks.class_table import class_rows, class_table, lines_of_classes, mean_of
from torchcaps.tasks.latest import open_latest
from torchcaps.tasks.measurements import (
    Levels,
    check_names,
    in_words,
    measured_by,
    parts_shown,
    seen_through,
    with_parts,
)
from torchcaps.tasks.overlap import seen_by
from torchcaps.tasks.predictions import check_path, write_predictions
from torchcaps.tasks.progress import progress
from torchcaps.tasks.tables import lines_of
from torchcaps.tasks.trained import MEANING, Own, check_fit
from torchcaps.train.answers import CRITERIA, is_correct, named_classes, present_classes
from torchcaps.train.class_measures import ClassMeasures, class_measures
from torchcaps.types import Output, ScoresAre

__all__ = ["Evaluation", "evaluate", "evaluate_file"]

# The result does not depend on it; the memory does.
BATCH = 100
UNFINISHED = "the run is not finished; the command that began it continues it"


@dataclass(frozen=True)
class Evaluation:
    """What a network says of n images of k classes."""

    data: str
    class_names: tuple[str, ...]
    scores: Tensor  # [n, k]
    scores_are: ScoresAre
    labels: Tensor  # [n], or [n, m] where m objects share an image
    said: Tensor  # bool [n, k], the classes it names
    right: Tensor  # bool [n]
    judged_by: JudgedBy
    loss: float
    loss_is: str
    split: str | None = None
    # bool [n]: the training set holds the same image. None where nobody looked.
    seen: Tensor | None = None
    # The test images of a run are others now than at its end.
    changed: bool = False
    # The levels that couplings were moved to.
    levels: Levels | None = None
    measured: dict[str, Result] = field(default_factory=dict)
    # Where each image was read from, of sets that are a file an image.
    files: tuple[str, ...] | None = None
    # The name of each image's group, where the set has groups: a patient's pictures, for example.
    groups: tuple[str, ...] | None = None
    # How a folder's groups are parted, in words; or groups that names suggest and nobody named.
    parted: str | None = None
    suggested: Suggested | None = None
    # Of when the weights of a run are that was stopped: "after epoch 2 of 3".
    stopped: str | None = None
    # Of which epoch the weights are, where those of the best were kept: "epoch 7 of 20, …".
    kept: str | None = None

    @property
    def accuracy(self) -> float:
        return float(self.right.double().mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the accuracy: the images vary in it, not the training."""
        return wilson(int(self.right.sum()), len(self.right))

    @property
    def commonest(self) -> Commonest:
        """The line that the accuracy has to beat: the one answer that is right most often."""
        return commonest(self.labels, self.class_names)

    @property
    def constant(self) -> str | None:
        """What the network says of every image, where that is always the same."""
        return constant_answer(self.said.sum(0), len(self.said), self.class_names)

    @cached_property
    def measures(self) -> ClassMeasures:
        """Measures in which every class counts the same, with intervals."""
        return class_measures(
            Output(self.scores, self.scores_are),
            self.labels,
            self.class_names,
            judged_by=self.judged_by,
            groups=self.groups,
        )

    @property
    def there(self) -> Tensor:
        """The classes that are there, bool [n, k]."""
        return present_classes(self.labels, len(self.class_names))

    @property
    def confusion(self) -> Tensor | None:
        """How many images of a class, down, were taken for which, across; [k, k]. None where an
        image shows several."""
        if self.labels.ndim == 2:
            return None
        k = len(self.class_names)
        flat = self.labels * k + self.said.long().argmax(-1)
        return flat.bincount(minlength=k * k).view(k, k)

    def numbers(self) -> dict[str, Any]:
        """Everything measured, as JSON can hold it."""
        there, confusion = self.there, self.confusion
        found: dict[str, Any] = {
            "data": self.data,
            "split": self.split,
            "images": len(self.right),
            "right": int(self.right.sum()),
            "accuracy": self.accuracy,
            "interval": self.interval,
            "commonest": self.commonest.numbers(),
            "constant": self.constant,
            "measures": self.measures.numbers(),
            "judged_by": self.judged_by,
            "loss": self.loss,
            "loss_is": self.loss_is,
            "scores_are": self.scores_are,
            "mean_score_there": mean_of(self.scores[there]),
            "mean_score_not_there": mean_of(self.scores[~there]),
            "classes": class_rows(self),
            "confusion": None if confusion is None else confusion.tolist(),
        }
        if self.stopped is not None:
            found["stopped"] = self.stopped
        if self.kept is not None:
            found["kept"] = self.kept
        if self.changed:
            found["changed_since_training"] = True
        if self.levels is not None:
            found["quantised"] = self.levels
        if self.measured:
            found["measured"] = {
                name: json.loads(each.to_json()) for name, each in self.measured.items()
            }
        if self.seen is not None:
            new = self.right[~self.seen]
            found["in_training"] = int(self.seen.sum())
            found["accuracy_without_them"] = mean_of(new)
        if self.parted is not None:
            found["parted"] = self.parted
        if self.suggested is not None:
            found["groups_by_names"] = asdict(self.suggested)
        return found

    def text(self) -> str:
        """The same for people."""
        numbers, (low, high) = self.numbers(), self.interval
        kind = f"{self.split} images" if self.split else "images"
        grid = "" if self.levels is None else f", couplings on {in_words(self.levels)} levels"
        line = self.commonest
        lines = [
            *([] if self.constant is None else [says_always(self.constant)]),
            f"accuracy  {self.accuracy:.2%}: {numbers['right']:,} of {numbers['images']:,} {kind} "
            f"of {self.data} (95 % Wilson interval {low:.2%} to {high:.2%}){grid}",
            f"to beat   {line.share:.2%}, which always saying {line.name!r} would give",
            *lines_of_classes(self),
            f"right     where {CRITERIA[self.judged_by]}",
            *([] if self.stopped is None else [f"weights   {self.stopped}: {UNFINISHED}"]),
            *([] if self.kept is None else [f"weights   of {self.kept}"]),
            f"loss      {self.loss:.4g}, {self.loss_is}",
            f"scores    {MEANING[self.scores_are]}",
            f"          mean {_short(numbers['mean_score_there'])} for classes that are there, "
            f"{_short(numbers['mean_score_not_there'])} for those that are not",
            "",
        ]
        lines += class_table(self)
        if numbers.get("in_training"):
            without = numbers["accuracy_without_them"]
            lines += [
                "",
                f"{numbers['in_training']:,} of these images are among the training images, pixel "
                f"for pixel; "
                + (f"accuracy on the others: {without:.2%}" if without is not None else "all are"),
            ]
        if self.changed:
            lines += [
                "",
                "these are other images than the run was tested on; some may have been training "
                "images then, and nothing here would show it",
            ]
        for told in (self.parted, self.suggested and self.suggested.text()):
            lines += ["", told] if told else []
        for name, result in self.measured.items():
            lines += ["", name, *lines_of(result, class_names=self.class_names)]
        return "\n".join(line.rstrip() for line in lines)


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


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
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    model.eval()
    scores, losses, labels = [], [], []
    with progress(f"evaluating on {images.name}", len(images)) as advance:
        for index in torch.arange(len(images)).split(batch_size):
            batch = images.batch(index)
            answer = network(batch.pixels.to(device))
            out = _plain(answer)
            _check_scores(out, images, int(index[0]))
            for each in looking.values():
                each.update(answer, with_parts(batch, parts, index))
            loss_is, loss = _loss(out, batch.labels)
            losses.append(loss.double() * len(index))
            scores.append(out.scores)
            labels.append(batch.labels)
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


def _plain(out: Output) -> Output:
    """The scores alone, where the labels are."""
    return Output(out.scores.float().cpu(), out.scores_are)


def _check_scores(out: Output, images: Images, first: int) -> None:
    if out.scores.shape[1] != len(images.class_names):
        raise TorchcapsError(
            f"the network tells {out.scores.shape[1]} classes apart, but {images.name} has "
            f"{len(images.class_names)}; show it the data it was trained on."
        )
    broken = (~out.scores.isfinite()).any(-1).nonzero()
    if len(broken):
        raise TorchcapsError(
            f"the scores of image {first + int(broken[0])} of {images.name} are not finite, so "
            f"nothing can be said of them; torchcaps doctor tells in which layer it begins."
        )


def _loss(out: Output, labels: Tensor) -> tuple[str, Tensor]:
    """The loss that fits the scores, whatever the network was trained by: runs can be compared."""
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
        model: the class of a network of one's own, or a module of it.
        levels: as in `evaluate`.
        measurements: as in `evaluate`.

    >>> evaluate_file(Path("my-run")).accuracy  # doctest: +SKIP
    """
    check_names(measurements)
    if predictions is not None:
        check_path(path_of("predictions", predictions))
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
    if predictions is not None:
        write_predictions(found, predictions)
    return found
