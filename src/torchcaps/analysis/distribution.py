"""How couplings are distributed, by layer and by predicted class [renzulli2025] Figs. 12 and 13.

Bins of equal width from 0 to 1, each with its lower border and the last with both; couplings below
zero and above one are counted apart.

Departures: none.
Ambiguities: the width of the bins is not given; 20 here, an argument.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps._checks import check_count
from torchcaps.analysis.by_name import measured_as
from torchcaps.analysis.measure import Answer, Labelled
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import (
    check_any,
    check_parents_are_classes,
    check_trace,
    class_coupling,
    finite_coupling,
    predicted_classes,
)
from torchcaps.types import Trace


@dataclass(frozen=True)
class CouplingHistogram:
    """Couplings of one layer, or those of all children of the last layer to a predicted class."""

    name: str
    below: int = quantity("couplings", "couplings below 0")
    counts: Tensor = quantity(
        "couplings", "couplings in each of equal bins from 0 to 1"
    )  # int64 [bins]
    above: int = quantity("couplings", "couplings above 1")


@dataclass(frozen=True)
class Couplings(Result):
    """One histogram a routed layer from the bottom up, and one a predicted class."""

    images: int
    bins: int
    layers: tuple[CouplingHistogram, ...]
    classes: tuple[CouplingHistogram, ...]


def coupling_counts(coupling: Tensor, *, bins: int = 20) -> Tensor:
    """Count couplings below 0, in each bin, and above 1: int64 [1 + bins + 1].

    Arguments:
        coupling: of any shape.
        bins: how many equal parts [0, 1] has.

    >>> coupling_counts(torch.tensor([0.1, 0.9]), bins=2)
    tensor([0, 1, 1, 0])
    """
    check_count("bins", bins)
    flat = coupling.flatten().double()
    scaled = flat * bins
    # In float32 0.7 is a little less than 0.7, so what lies at a border but for rounding is on it.
    eps = torch.finfo(coupling.dtype).eps if coupling.is_floating_point() else 0.0
    border = scaled.round()
    is_border = (scaled - border).abs() <= eps * scaled.abs()
    index = torch.where(is_border, border, scaled.floor()).clamp(max=bins - 1) + 1
    index = torch.where(flat < 0, 0, torch.where(flat > 1, bins + 1, index))
    return torch.bincount(index.long(), minlength=bins + 2)


@measured_as("couplings")
class MeasureCouplings:
    """Histograms of couplings.

    Arguments:
        bins: how many bins lie from 0 to 1.
    """

    def __init__(self, *, bins: int = 20) -> None:
        check_count("bins", bins)
        self.bins = int(bins)
        self._images = 0
        # By the name of a layer, or by the number of a class.
        self._counts: dict[str | int, Tensor] = {}

    def update(self, out: Answer, batch: Labelled) -> None:
        check_trace(out.trace)
        check_parents_are_classes(out.trace, out.scores.shape[1])
        self.add(out.trace, predicted_classes(out.scores, batch.labels))

    def add(self, trace: Trace, predicted: Tensor) -> None:
        """Count couplings of images whose predicted classes are [k], or [k, m] of m objects."""
        check_trace(trace)
        self._images += len(predicted)
        for labels in predicted.view(len(predicted), -1).unbind(1):
            towards = class_coupling(trace, labels)
            for label in labels.unique().tolist():
                self._count(label, coupling_counts(towards[labels == label], bins=self.bins))
        for layer in trace:
            self._count(layer.name, coupling_counts(finite_coupling(layer), bins=self.bins))

    def _count(self, name: str | int, counts: Tensor) -> None:
        self._counts[name] = self._counts[name] + counts if name in self._counts else counts

    def result(self) -> Couplings:
        check_any(self._counts)
        layers = [_histogram(n, each) for n, each in self._counts.items() if isinstance(n, str)]
        labels = sorted(name for name in self._counts if isinstance(name, int))
        classes = [_histogram(str(label), self._counts[label]) for label in labels]
        return Couplings(self._images, self.bins, tuple(layers), tuple(classes))


def _histogram(name: str, counts: Tensor) -> CouplingHistogram:
    return CouplingHistogram(name, int(counts[0]), counts[1:-1], int(counts[-1]))
