"""What a network says of images, and what follows of that: in numbers, and in words."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from torchcaps.analysis.result import Result
from torchcaps.analysis.shares import (
    Commonest,
    commonest,
    constant_answer,
    says_always,
)
from torchcaps.data import JudgedBy
from torchcaps.data.read.grouping import Suggested
from torchcaps.data.sample import present_classes
from torchcaps.tasks.measurements import Levels, in_words
from torchcaps.tasks.tables import aligned, lines_of
from torchcaps.tasks.trained import MEANING
from torchcaps.train.answers import CRITERIA
from torchcaps.train.class_measures import ClassMeasures, class_measures
from torchcaps.types import Output, ScoresAre

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
    # How classes were evened out in training, in words.
    evened: str | None = None

    @property
    def accuracy(self) -> float:
        return float(self.right.double().mean())

    @property
    def interval(self) -> tuple[float, float] | None:
        """Take the 95 % interval of the accuracy, Wilson's or that over groups; the images vary in
        it, not the training. None where all are of one group."""
        return self.measures.accuracy.interval

    @property
    def commonest(self) -> Commonest:
        """Find the line that the accuracy has to beat: the one answer that is right most often."""
        return commonest(self.labels, self.class_names)

    @property
    def constant(self) -> str | None:
        """Give what the network says of every image, where that is always the same."""
        return constant_answer(self.said.sum(0), len(self.said), self.class_names)

    @cached_property
    def measures(self) -> ClassMeasures:
        """Take measures in which every class counts the same, with intervals."""
        return class_measures(
            Output(self.scores, self.scores_are),
            self.labels,
            self.class_names,
            judged_by=self.judged_by,
            groups=self.groups,
        )

    @property
    def there(self) -> Tensor:
        """Mark the classes that are there, bool [n, k]."""
        return present_classes(self.labels, len(self.class_names))

    @property
    def confusion(self) -> Tensor | None:
        """Count images by class, down, and answer, across, [k, k]; None where one shows several."""
        if self.labels.ndim == 2:
            return None
        k = len(self.class_names)
        flat = self.labels * k + self.said.long().argmax(-1)
        return flat.bincount(minlength=k * k).view(k, k)

    def numbers(self) -> dict[str, Any]:
        """Give everything measured, as JSON can hold it."""
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
            "mean_score_there": _mean_of(self.scores[there]),
            "mean_score_not_there": _mean_of(self.scores[~there]),
            "classes": _class_rows(self),
            "confusion": None if confusion is None else confusion.tolist(),
        }
        measured = {name: json.loads(each.to_json()) for name, each in self.measured.items()}
        more = {
            "stopped": self.stopped,
            "kept": self.kept,
            "trained_with": self.evened,
            "changed_since_training": self.changed or None,
            "quantised": self.levels,
            "measured": measured or None,
            "parted": self.parted,
            "groups_by_names": self.suggested and asdict(self.suggested),
        }
        found |= {name: value for name, value in more.items() if value is not None}
        if self.seen is not None:
            found["in_training"] = int(self.seen.sum())
            found["accuracy_without_them"] = _mean_of(self.right[~self.seen])
        return found

    def text(self) -> str:
        """Say the same for people."""
        numbers, line = self.numbers(), self.commonest
        kind = f"{self.split} images" if self.split else "images"
        grid = "" if self.levels is None else f", couplings on {in_words(self.levels)} levels"
        over = "Wilson interval" if self.groups is None else "interval over groups"
        varies = f"no interval: {self.measures.accuracy.why}"
        if self.interval is not None:
            varies = "95 % {} {:.2%} to {:.2%}".format(over, *self.interval)
        lines = [
            *([] if self.constant is None else [says_always(self.constant)]),
            f"accuracy  {self.accuracy:.2%}: {numbers['right']:,} of {numbers['images']:,} {kind} "
            f"of {self.data} ({varies}){grid}",
            f"to beat   {line.share:.2%}, which always saying {line.name!r} would give",
            *(f"{'' if k else 'classes':10}{told}" for k, told in enumerate(self.measures.lines())),
            f"right     where {CRITERIA[self.judged_by]}",
            *([] if self.stopped is None else [f"weights   {self.stopped}: {UNFINISHED}"]),
            *([] if self.kept is None else [f"weights   of {self.kept}"]),
            *([] if self.evened is None else [f"trained   with {self.evened}"]),
            f"loss      {self.loss:.4g}, {self.loss_is}",
            f"scores    {MEANING[self.scores_are]}",
            f"          mean {_short(numbers['mean_score_there'])} for classes that are there, "
            f"{_short(numbers['mean_score_not_there'])} for those that are not",
            "",
        ]
        lines += _class_table(self)
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


def _class_rows(found: Evaluation) -> list[dict[str, Any]]:
    rows = []
    for k, name in enumerate(found.class_names):
        there, said, scores = found.there[:, k], found.said[:, k], found.scores[:, k]
        rows.append(
            {
                "class": name,
                "images": int(there.sum()),
                "found": int((there & said).sum()),
                "said": int(said.sum()),
                "mean_score_there": _mean_of(scores[there]),
                "mean_score_not_there": _mean_of(scores[~there]),
            }
        )
    return rows


def _class_table(found: Evaluation) -> Iterator[str]:
    """Make a row for each class: how much of it is found, and what it is taken for."""
    rows = _class_rows(found)
    images = [f"{row['images']:,}" for row in rows]
    if measures := found.measures.classes.values():
        columns = {
            "found [95 %]": [row["sensitivity"].cell() for row in measures],
            "of": images,
            "specificity": [row["specificity"].cell() for row in measures],
            "AUROC": [row["auroc"].cell() for row in measures],
        }
    else:
        shares = [f"{row['found'] / row['images']:.1%}" if row["images"] else "–" for row in rows]
        columns = {"found": shares, "of": images}
    names = list(found.class_names)
    mistaken = [_mistaken(found, k) for k in range(len(names))]
    return aligned({"class": names, **columns, "mistaken most for": mistaken})


def _mean_of(values: Tensor) -> float | None:
    return float(values.double().mean()) if len(values) else None


def _mistaken(found: Evaluation, k: int) -> str:
    if found.confusion is None:
        return ""
    row = found.confusion[k].clone()
    row[k] = 0
    most = int(row.argmax())
    return f"{found.class_names[most]} ({int(row[most])})" if row[most] else ""
