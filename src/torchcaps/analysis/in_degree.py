"""In-degree: how many children a parent truly has [renzulli2025] §3.2.2.

With n parents in the layer:
    deg_j = Σ_i 1[c_ij > t / n],    t = 1

Departures: none.
Ambiguities: "above" means by more than a millionth of the threshold, because the rounding of an
even split would decide otherwise; in half precision what is even but for its rounding is even.
Through windows the children of a parent are the slots of its window. Couplings that sum to one over
children, or over all positions, are first multiplied by what makes an even split 1 / n.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.analysis.by_name import measured_as
from torchcaps.analysis.even_split import comparable_coupling
from torchcaps.analysis.measure import OfTraces
from torchcaps.analysis.moments import Moments
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import check_any, check_trace
from torchcaps.types import Trace

SWEEP = (0.5, 1.0, 2.0)


@dataclass(frozen=True)
class LayerInDegree:
    """One routed layer; `sweep` has (threshold, mean, share with a child) for other thresholds."""

    name: str
    mean: float = quantity("children", "mean in-degree of a parent")
    with_a_child: float = quantity("share of parents", "parents with an in-degree of at least 1")
    each: Tensor = quantity("children", "mean in-degree of each parent")  # [j], or [p · j]
    sweep: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True)
class InDegree(Result):
    """One row a routed layer, from the bottom up."""

    images: int
    threshold: float
    layers: tuple[LayerInDegree, ...]


def in_degree(coupling: Tensor, *, threshold: float = 1.0) -> Tensor:
    """Count children above the threshold, [*b, j].

    Arguments:
        coupling: couplings [*b, i, j].
        threshold: in even splits; 1 is one over the number of parents.

    >>> in_degree(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor([2, 0])
    """
    least = threshold / coupling.shape[-1] * (1 + 1e-6)
    return (coupling > least).sum(-2)


@measured_as("in-degree")
class MeasureInDegree(OfTraces):
    """In-degrees of every routed layer.

    Arguments:
        threshold: in even splits; 1 is one over the number of parents.
        sweep: thresholds at which the layer is reported again.
    """

    def __init__(self, *, threshold: float = 1.0, sweep: tuple[float, ...] = SWEEP) -> None:
        self.threshold, self.sweep = threshold, sweep
        # Of degree and of "at least one", for each threshold: [thresholds, 2, parents].
        self._layers: dict[str, Moments] = {}

    def add(self, trace: Trace) -> None:
        check_trace(trace)
        for layer in trace:
            coupling = comparable_coupling(layer)
            rows = []
            for threshold in (self.threshold, *self.sweep):
                degree = in_degree(coupling, threshold=threshold).flatten(1)  # [k, parents]
                rows.append(torch.stack([degree, degree >= 1], 1))
            self._layers.setdefault(layer.name, Moments()).add(torch.stack(rows, 1))

    def result(self) -> InDegree:
        check_any(self._layers)
        rows = []
        for name, moments in self._layers.items():
            (mean, seen), *others = moments.mean.mean(-1).tolist()
            sweep = tuple((t, *each) for t, each in zip(self.sweep, others, strict=True))
            rows.append(LayerInDegree(name, mean, seen, moments.mean[0, 0], sweep))
        images = next(iter(self._layers.values())).count
        return InDegree(images, self.threshold, tuple(rows))
