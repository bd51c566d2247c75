"""Robustness: the accuracy along rotation, translation, noise, occlusion, or any other change.

An answer is right where the highest scores are those of the labels, as many as an image has. The
interval is Wilson's, of 95 %.

Departures: none; the measure is ours.
Ambiguities: none. What is changed, and how strongly, is the caller's to say.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchcaps._checks import check_finite
from torchcaps.analysis.measure import Answer, Labelled, changed_pixels, check_changes
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.shares import wilson
from torchcaps.analysis.trace import check_any, judged_answers
from torchcaps.errors import TorchcapsError

UNCHANGED = "unchanged"


@dataclass(frozen=True)
class ChangedAccuracy:
    """Accuracy under one change."""

    change: str
    accuracy: float = quantity("share of images", "images that are right")
    interval: tuple[float, float] = quantity("share of images", "95 % Wilson interval")


@dataclass(frozen=True)
class Robustness(Result):
    """One row a change, the images as they are first."""

    images: int
    changes: tuple[ChangedAccuracy, ...]


class MeasureRobustness:
    """Accuracy on changed images.

    Arguments:
        network: the network that is measured, which looks at the changed images too.
        changes: from pixels to changed pixels, by a name such as "rotation 30°"; the rows have
            their order.
    """

    def __init__(
        self,
        network: Callable[[Tensor], Any],
        changes: Mapping[str, Callable[[Tensor], Tensor]],
    ) -> None:
        check_changes(changes)
        if UNCHANGED in changes:
            raise TorchcapsError(
                f"the images as they are have the name {UNCHANGED!r} already; give the change "
                f"another one."
            )
        self.network, self.changes = network, changes
        self._right: dict[str, int] = {}
        self._images = 0

    def update(self, out: Answer, batch: Labelled) -> None:
        if batch.labels is None:
            raise TorchcapsError("robustness compares with labels, but the batches have none.")
        found = {UNCHANGED: _right(UNCHANGED, out.scores, batch.labels)}
        for name, change in self.changes.items():
            changed = changed_pixels(name, change, batch.pixels)
            with torch.no_grad():
                scores = self.network(changed).scores
            found[name] = _right(name, scores, batch.labels)
        self._images += len(batch.pixels)
        for name, right in found.items():
            self._right[name] = self._right.get(name, 0) + right

    def result(self) -> Robustness:
        check_any(self._right)
        rows = [
            ChangedAccuracy(name, right / self._images, wilson(right, self._images))
            for name, right in self._right.items()
        ]
        return Robustness(self._images, tuple(rows))


def _right(name: str, scores: Tensor, labels: Tensor) -> int:
    so = "does the change divide by zero, or did training diverge?"
    check_finite(f"scores of the {name!r} images", scores, so)
    right, _ = judged_answers(scores, labels)
    return int(right.sum())
