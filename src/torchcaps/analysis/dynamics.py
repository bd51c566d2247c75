"""Routing dynamics: does the tree depend on the image? [mitterreiter2023] §4.1

For capsule i and its couplings C ∈ R^{k×n} to n parents over k images, compared with a perfect
routing, which sends each image to exactly one parent and uses all n equally often:
    std(pr_n) = sqrt((1 − 1/n) / n)
    dyr_i = (1/n) Σ_j std(C_·j) / std(pr_n)
    dys_i = n · dyr_i
A layer has the mean over its children; through windows, where each slot of a window is a child and
each window has parents of its own, over all slots of all windows that have two living parents.
1 is perfect routing, 0 a tree that never changes.

Departures: none.
Ambiguities:
1. n: the printed values fit only when it counts parents that are alive; dead parents are dropped,
   without renormalising the couplings, and dead children leave the mean. Both can be turned off.
2. std: over the population, so that perfect routing gives exactly 1.

3. Couplings that do not sum to one over the parents, as those of attention over children, cannot
   reach 1: with 100 children and 10 parents perfect attention has 0.33.

dys is no count of parents in use: a child that switches evenly between 2 of 10 parents has dys
3.33.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps._checks import check_shape
from torchcaps.analysis.activity import SWEEP, Thresholds, check_thresholds, is_dead
from torchcaps.analysis.by_name import measured_as
from torchcaps.analysis.even_split import even_split
from torchcaps.analysis.measure import OfTraces
from torchcaps.analysis.moments import Moments
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import (
    check_any,
    check_children,
    check_trace,
    finite_coupling,
    image_coupling,
    lengths,
)
from torchcaps.errors import TorchcapsError
from torchcaps.types import LayerTrace, Trace


@dataclass(frozen=True)
class LayerDynamics:
    """Not a number (None in JSON: null) where fewer than two parents, or no child, are left.
    `sweep` has (factor, parents that count, dyr, dys) for multiples of the thresholds."""

    name: str
    n_parents: int = quantity("capsules", "parents that count")
    n_children: int = quantity("capsules", "children that count")
    dyr: float | None = quantity("share of perfect routing", "how much the couplings change")
    dys: float | None = quantity("capsules", "dyr times parents")
    strongest: float = quantity("share of a child", "mean coupling to the favourite parent")
    even: float = quantity("share of a child", "the same under an even split")
    # Over all children and parents, dead or alive, and divided by nothing.
    coupling_std: float = quantity("share of a child", "mean standard deviation of a coupling")
    # [i, j], through windows [p, i, j]
    mean: Tensor = quantity("share of a child", "mean couplings")
    std: Tensor = quantity("share of a child", "standard deviation of couplings")
    sweep: tuple[tuple[float, int, float | None, float | None], ...] = ()


@dataclass(frozen=True)
class RoutingDynamics(Result):
    """One row a routed layer, from the bottom up."""

    images: int
    layers: tuple[LayerDynamics, ...]


def routing_dynamics(
    trace: Trace,
    *,
    thresholds: Thresholds = Thresholds(),
    drop_dead_parents: bool = True,
    drop_dead_children: bool = True,
) -> RoutingDynamics:
    """Measure every routed layer of a trace over its images.

    Arguments:
        trace: what `model(images, keep="last").trace` holds.
        thresholds: from which length a capsule counts as active, and below which it counts as dead.
        drop_dead_parents: whether parents that are dead on all images are left out.
        drop_dead_children: the same of children.

    >>> for layer in routing_dynamics(out.trace).layers:
    ...     print(layer.name, layer.dyr)
    """
    measurement = MeasureDynamics(
        thresholds=thresholds,
        drop_dead_parents=drop_dead_parents,
        drop_dead_children=drop_dead_children,
    )
    measurement.add(trace)
    return measurement.result()


@measured_as("dynamics")
class MeasureDynamics(OfTraces):
    """Routing dynamics of a stream of images; see `routing_dynamics`."""

    def __init__(
        self,
        *,
        thresholds: Thresholds = Thresholds(),
        drop_dead_parents: bool = True,
        drop_dead_children: bool = True,
    ) -> None:
        check_thresholds(thresholds)
        self.thresholds = thresholds
        self.drop_dead_parents, self.drop_dead_children = drop_dead_parents, drop_dead_children
        self._layers: dict[str, _Layer] = {}

    def add(self, trace: Trace) -> None:
        check_trace(trace)
        for layer in trace:
            self._layers.setdefault(layer.name, _Layer()).add(layer)

    def result(self) -> RoutingDynamics:
        check_any(self._layers)
        images = next(iter(self._layers.values())).coupling.count
        if images < 2:
            raise TorchcapsError("dynamics compare images, so a trace needs at least two of them.")
        return RoutingDynamics(images, tuple(self._row(name) for name in self._layers))

    def _row(self, name: str) -> LayerDynamics:
        layer = self._layers[name]
        coupling = layer.coupling
        children, n, dyr, dys = self._rates(layer, self.thresholds)
        alive, slots = int(children.sum()), children[layer.child]
        favourite = layer.favourite.mean  # [i], or [p, i]
        even = layer.even.squeeze(-1)  # [1], or [p, i]
        even = even[slots] if alive and even.shape == slots.shape else even
        return LayerDynamics(
            name=name,
            n_parents=n,
            n_children=alive,
            dyr=dyr,
            dys=dys,
            strongest=float(favourite[slots].mean() if alive else favourite.mean()),
            even=float(even.mean()),
            coupling_std=float(coupling.std.mean()),
            mean=coupling.mean,
            std=coupling.std,
            sweep=tuple(
                (factor, *self._rates(layer, self.thresholds.times(factor))[1:]) for factor in SWEEP
            ),
        )

    def _rates(
        self, layer: "_Layer", thresholds: Thresholds
    ) -> tuple[Tensor, int, float | None, float | None]:
        """Give the children that count, bool [n], how many parents do, dyr and dys."""
        parents, children = (
            ~is_dead(each.mean, each.std, thresholds) | (not dropped)
            for each, dropped in (
                (layer.parents, self.drop_dead_parents),
                (layer.children, self.drop_dead_children),
            )
        )
        windows = parents.view(*layer.child.shape[:-1], -1)
        rates = _rates(layer.coupling.std, children[layer.child], windows)
        return children, int(parents.sum()), *rates


class _Layer:
    def __init__(self) -> None:
        self.coupling, self.favourite = Moments(), Moments()  # [i, j], [i]
        self.children, self.parents = Moments(), Moments()  # of all capsules of the layers
        # Which child lies in a slot, [i], or [p, i].
        self.child = torch.zeros(0, dtype=torch.int64)
        self.even = torch.zeros(0, dtype=torch.float64)  # [1, 1], or [p, i, 1]

    def add(self, layer: LayerTrace) -> None:
        if layer.window is None:
            coupling = image_coupling(layer)
            check_children(layer)
            self.child = torch.arange(coupling.shape[-2])
        else:
            coupling, self.child = finite_coupling(layer), layer.window.child_id()
            axes = ("images", *self.child.shape, "parent")
            check_shape(f"couplings of {layer.name} through windows", coupling, axes)
        self.even = even_split(layer)
        self.coupling.add(coupling)
        shares = coupling
        if layer.normalised_over == "none":
            # A learned prior is added to those of self-attention, which then sum to anything.
            shares = coupling.abs()
            shares = shares / shares.sum(-1, keepdim=True).clamp(min=1e-30)
        self.favourite.add(shares.amax(-1))
        self.children.add(lengths(layer.children))
        self.parents.add(lengths(layer.routed.parents))


def _rates(std: Tensor, children: Tensor, parents: Tensor) -> tuple[float | None, float | None]:
    """Give dyr and dys of standard deviations [*p, i, j] with children [*p, i] and parents [*p, j]
    that count; each child goes by the living parents of its window."""
    n = parents.double().sum(-1, keepdim=True)  # [*p, 1]
    counts = children & (n >= 2)
    if not bool(counts.any()):
        return None, None
    total = (std * parents.unsqueeze(-2)).sum(-1)  # [*p, i]
    dys = (total / ((1 - 1 / n) / n).sqrt()).where(counts, 0)
    dyr = (dys / n.clamp(min=1)).sum() / counts.sum()
    return float(dyr), float(dys.sum() / counts.sum())


def perfect_std(n: int) -> float:
    """Give the standard deviation of a coupling under perfect routing to n parents."""
    return math.sqrt((1 - 1 / n) / n)
