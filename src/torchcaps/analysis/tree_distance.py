"""How far the parse trees of two images lie apart, after [mitterreiter2023] Fig. 5.

With rows c_i of couplings and weights w_i = (‖u_i(x)‖ + ‖u_i(y)‖) / 2 of the children of a layer:
    d(x, y) = Σ_i w_i · ½ Σ_j |c_ij(x) − c_ij(y)| / Σ_i w_i
and D(x, y) is the mean of d over the layers. 0 is the same tree, 1 a tree in which every child that
counts has gone to other parents.

Departures: the figure is a picture; the formula is ours. Rows are divided by their sums of |c|
first, so that a learned prior or negative couplings leave d in [0, 1].
Ambiguities: poses without activation weigh 1 each; where all weights are 0, d is 0.
"""

from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from torchcaps.analysis.by_name import measured_as
from torchcaps.analysis.measure import Answer, Labelled
from torchcaps.analysis.pairs import labels_or_none, neighbours
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.sample import MOST, Sample
from torchcaps.analysis.trace import check_children, check_trace, child_of, finite_coupling
from torchcaps.errors import TorchcapsError
from torchcaps.types import Trace


@dataclass(frozen=True)
class LayerTreeDistance:
    """One layer, or "all": their mean. None where the sample has no such pair."""

    name: str
    random: float = quantity("share", "mean distance of pairs as they come")
    same: float | None = quantity("share", "mean distance of pairs with the same labels")
    different: float | None = quantity("share", "mean distance of pairs with different labels")


@dataclass(frozen=True)
class TreeDistance(Result):
    """One row a routed layer from the bottom up, then their mean; over a sample of `images`."""

    images: int
    layers: tuple[LayerTreeDistance, ...]


def tree_distance(first: Trace, second: Trace) -> dict[str, Tensor]:
    """Measure the distance [k] of image n of one trace to image n of the other, by layer.

    Arguments:
        first: trace of k images.
        second: trace of as many by the same network; of transformed copies, say.

    >>> tree_distance(out.trace, moved.trace)["classes"].mean()
    """
    x, y = _rows(first), _rows(second)
    shapes = [[tuple(coupling.shape) for coupling, _ in rows] for rows in (x, y)]
    if shapes[0] != shapes[1]:
        raise TorchcapsError(
            f"tree_distance compares two traces of as many images by the same network, but their "
            f"couplings are {shapes[0]} and {shapes[1]} (images, children, parents)."
        )
    pairs = zip(first, x, y, strict=True)
    return {layer.name: _distance(*a, *b) for layer, a, b in pairs}


def _rows(trace: Trace) -> list[tuple[Tensor, Tensor]]:
    """Return couplings [k, i, j] that sum to one, and weights [k, i], of all slots of windows."""
    check_trace(trace)
    found, slots = [], child_of(trace)
    for layer in trace:
        coupling = finite_coupling(layer)
        if coupling.ndim != (3 if layer.window is None else 4):
            raise TorchcapsError(
                f"trees are compared image by image, so a trace needs exactly one batch axis, but "
                f"the couplings of {layer.name} have shape {list(coupling.shape)}."
            )
        check_children(layer)
        weight = layer.children.activation
        if weight is None:
            weight = torch.ones(layer.children.pose.shape[:-1])
        weight = weight.detach().cpu().double()[:, slots[layer.name].cpu()]
        coupling, weight = coupling.flatten(1, -2), weight.flatten(1)
        total = coupling.abs().sum(-1, keepdim=True)
        found.append((coupling / total.where(total > 0, 1), weight))
    return found


def _distance(c_x: Tensor, w_x: Tensor, c_y: Tensor, w_y: Tensor) -> Tensor:
    weight = (w_x + w_y) / 2
    moved = (c_x - c_y).abs().sum(-1) / 2  # [k, i]
    total = weight.sum(-1)
    return (weight * moved).sum(-1) / total.where(total > 0, 1)


@measured_as("tree-distance")
class MeasureTreeDistance:
    """Distances of trees in a sample: neighbours in its order are the random pairs; neighbours of
    the same labels the pairs with the same labels.

    Arguments:
        sample: most images of the sample.
        seed: another seed draws another sample.
    """

    def __init__(self, *, sample: int = MOST, seed: int = 0) -> None:
        self._sample = Sample(size=sample, seed=seed)
        self._names: tuple[str, ...] = ()

    def update(self, out: Answer, batch: Labelled) -> None:
        rows = _rows(out.trace)
        labels = labels_or_none(batch)
        self._names = tuple(layer.name for layer in out.trace)
        self._sample.add(batch.pixels, labels, *chain.from_iterable(rows))

    def result(self) -> TreeDistance:
        labels, *rows = self._sample.columns(least=2)
        pairs = neighbours(labels)
        found: dict[str, list[float | None]] = {
            kind: [
                float(_distance(c[x], w[x], c[y], w[y]).mean()) if len(x) else None
                for c, w in zip(rows[::2], rows[1::2], strict=True)
            ]
            for kind, (x, y) in pairs.items()
        }
        table = [*zip(self._names, *found.values(), strict=True)]
        means = [_mean(found[kind]) for kind in found]
        layers = tuple(LayerTreeDistance(*row) for row in [*table, ("all", *means)])
        return TreeDistance(len(labels), layers)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
