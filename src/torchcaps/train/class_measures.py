"""Measures that naming the commonest class cannot raise, for every class counts the same in them.

Each measures one class against the rest; that of all classes is the mean over them, "macro". A
class without an image has no sensitivity, F1, AUROC or average precision, and then there is no mean
either: one over fewer classes is another measure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.analysis.shares import wilson
from torchcaps.data.batch import JudgedBy
from torchcaps.train.answers import is_correct
from torchcaps.train.drawn_anew import drawn_anew, measuring, middle_of, share_anew
from torchcaps.types import Output


class Kind(NamedTuple):
    """A measure: its name for people, what it is the mean of over classes, its meaning."""

    words: str
    of_class: str
    meaning: str


# By the name in JSON, and in a recipe's `select_by`.
MEASURES: Mapping[str, Kind] = MappingProxyType(
    {
        "balanced_accuracy": Kind(
            "balanced accuracy", "sensitivity", "share of the images of a class that are found"
        ),
        "macro_f1": Kind("macro F1", "f1", "harmonic mean of sensitivity and precision"),
        "auroc": Kind(
            "AUROC", "auroc", "how often an image of a class scores higher in it than another image"
        ),
        "average_precision": Kind(
            "average precision",
            "average_precision",
            "precision among the images that score as high as one of the class, their mean",
        ),
    }
)
# What is told of each class.
OF_CLASS = ("sensitivity", "specificity", "auroc", "average_precision")
# A sentence names at most so many absent classes.
MOST_NAMED = 3


class Measure(NamedTuple):
    """A share with its 95 % interval; `why` says why one of them is missing."""

    value: float | None
    interval: tuple[float, float] | None = None
    why: str | None = None

    def numbers(self) -> dict[str, Any]:
        """Give them as JSON has them; digits beyond the seventh are rounding."""
        found = {name: x for name, x in self._asdict().items() if name != "why" or x is not None}
        if self.interval is not None:
            found["interval"] = tuple(round(each, 7) for each in self.interval)
        return found

    def text(self) -> str:
        """Write the same for people."""
        if self.value is None:
            return f"–: {self.why}"
        if self.interval is None:
            return f"{self.value:.2%} (no interval: {self.why})"
        return f"{self.value:.2%} (95 % interval {self.interval[0]:.2%} to {self.interval[1]:.2%})"

    def cell(self) -> str:
        """Write the same, short enough for a table."""
        if self.value is None:
            return "–"
        bounds = (
            ""
            if self.interval is None
            else " [{:.1f}, {:.1f}]".format(*(100 * each for each in self.interval))
        )
        return f"{self.value:.1%}{bounds}"


@dataclass(frozen=True)
class ClassMeasures:
    """The measures of all classes by name, those of each class, and the share of right images."""

    macro: Mapping[str, Measure]
    classes: Mapping[str, Mapping[str, Measure]]
    accuracy: Measure

    def numbers(self) -> dict[str, Any]:
        """Give everything, as JSON has it."""
        rows = [
            {"class": name, **{kind: each.numbers() for kind, each in row.items()}}
            for name, row in self.classes.items()
        ]
        whole = {"accuracy": self.accuracy, **self.macro}
        return {**{name: each.numbers() for name, each in whole.items()}, "classes": rows}

    def lines(self) -> list[str]:
        """Write those of all classes for people, in four lines, or in one where there are none."""
        names = [kind.words for kind in MEASURES.values()]
        # One reason that all of them lack is said once.
        (why, *others) = {each.why if each.value is None else None for each in self.macro.values()}
        if why is not None and not others:
            return [f"{', '.join(names[:-1])} and {names[-1]}  –: {why}"]
        wide = max(map(len, names))
        return [
            f"{name:{wide}}  {each.text()}"
            for name, each in zip(names, self.macro.values(), strict=True)
        ]


def class_measures(
    out: Output,
    labels: Tensor,
    class_names: Sequence[str],
    *,
    judged_by: JudgedBy = "class",
    groups: Sequence[str] | None = None,
) -> ClassMeasures:
    """Measure what a network says of images, with intervals.

    Accuracy, sensitivity and specificity have Wilson intervals, and balanced accuracy the one that
    follows from those of its classes [zou2008]. The other intervals are of a bootstrap of images;
    where images belong to groups, all are of a bootstrap of groups: see `drawn_anew`. Where labels
    are [n, m], of images that show several objects, accuracy alone is measured.
    """
    right = is_correct(out, labels, judged_by=judged_by).cpu()
    if groups is None:
        accuracy = Measure(float(right.double().mean()), wilson(int(right.sum()), len(right)))
    else:
        accuracy = _drawn(float(right.double().mean()), share_anew(right, groups), groups)
    why = why_undefined(labels, class_names, judged_by=judged_by)
    is_finite = bool(out.scores.isfinite().all())
    if judged_by != "class" or not is_finite:
        why = why if is_finite else "some scores are not finite"
        return ClassMeasures(dict.fromkeys(MEASURES, Measure(None, None, why)), {}, accuracy)
    ranks, said, labels = ranks_of(out), out.scores.argmax(-1).cpu(), labels.cpu()
    values = _of_classes(ranks, said, labels)
    draws = drawn_anew(ranks, said, labels, groups)
    counted = {} if groups is not None else _by_counts(said, labels, len(class_names))

    def of_class(kind: str, k: int) -> Measure:
        value = float(values[kind][k])
        if math.isnan(value):
            there = bool((labels == k).any())
            return Measure(None, None, f"{'every' if there else 'no'} image is of this class")
        if kind in counted:
            return Measure(value, counted[kind][k])
        return _drawn(value, draws[kind][:, k], groups)

    def of_all(name: str, kind: str) -> Measure:
        if why is not None:
            return Measure(None, None, why)
        value = float(values[kind].mean())
        if name == "balanced_accuracy" and counted:
            return Measure(value, _of_mean(values[kind], counted[kind]))
        return _drawn(value, draws[kind].mean(1), groups)

    return ClassMeasures(
        {name: of_all(name, kind.of_class) for name, kind in MEASURES.items()},
        {
            name: {kind: of_class(kind, k) for kind in OF_CLASS}
            for k, name in enumerate(class_names)
        },
        accuracy,
    )


def _drawn(value: float, draws: Tensor, groups: Sequence[str] | None) -> Measure:
    """Take the interval of a value out of draws, or say why they give none."""
    alone = groups is not None and len(set(groups)) == 1
    found = "all images are of one group" if alone else middle_of(draws, value)
    return Measure(value, None, found) if isinstance(found, str) else Measure(value, found)


def macro_values(out: Output, labels: Tensor) -> dict[str, float]:
    """Give the measures of all classes by name, without intervals and without undefined ones."""
    if not bool(out.scores.isfinite().all()):
        return {}
    values = _of_classes(ranks_of(out), out.scores.argmax(-1).cpu(), labels.cpu())
    found = {name: float(values[kind.of_class].mean()) for name, kind in MEASURES.items()}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def why_undefined(
    labels: Tensor, class_names: Sequence[str], *, judged_by: JudgedBy = "class"
) -> str | None:
    """Say why images with these labels have no measure of all classes; None where they have one."""
    if judged_by != "class":
        return "an image may show several objects"
    there = set(labels.unique().tolist())
    absent = [repr(name) for k, name in enumerate(class_names) if k not in there]
    if len(class_names) == 1:
        return "there is one class alone"
    if not absent:
        return None
    more = len(absent) - MOST_NAMED
    named = ", ".join(absent[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"no image is of the class{'es' if len(absent) > 1 else ''} {named}"


def ranks_of(out: Output) -> Tensor:
    """Rank images by their probability of each class, [n, k]: lowest first, equal ones alike."""
    # Twice as precise: a softmax makes more ties where it rounds.
    exact = Output(out.scores.detach().cpu().double(), out.scores_are).probabilities()
    return torch.stack([each.unique(return_inverse=True)[1] for each in exact.unbind(1)], dim=1)


def _of_classes(ranks: Tensor, said: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Give every measure of every class, [k]; NaN where it is undefined."""
    found = measuring(ranks, said, labels)(torch.ones(1, len(labels)))
    return {name: values[0].round(decimals=7) for name, values in found.items()}


def _by_counts(said: Tensor, labels: Tensor, k: int) -> dict[str, list[tuple[float, float]]]:
    """Give the Wilson intervals of sensitivity and specificity, one a class."""
    found: dict[str, list[tuple[float, float]]] = {"sensitivity": [], "specificity": []}
    for j in range(k):
        is_class, is_said = labels == j, said == j
        for kind, right, of in (
            ("sensitivity", is_said & is_class, is_class),
            ("specificity", ~is_said & ~is_class, ~is_class),
        ):
            n = int(of.sum())
            found[kind].append(wilson(int(right.sum()), n) if n else (0.0, 1.0))
    return found


def _of_mean(shares: Tensor, intervals: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Give the interval of the mean of independent shares, out of their own [zou2008]."""
    low, high = torch.tensor(intervals, dtype=torch.float64).T
    value, k = float(shares.mean()), len(shares)
    below, above = ((shares - low).norm() / k, (high - shares).norm() / k)
    return value - float(below), value + float(above)
