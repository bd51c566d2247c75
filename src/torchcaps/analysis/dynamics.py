"""Routing dynamics: does the tree depend on the image? [mitterreiter2023] §4.1

For capsule i and its couplings C ∈ R^{k×n} to n parents over k images, compared with a perfect
routing, which sends each image to exactly one parent and uses all n equally often:
    std(pr_n) = sqrt((1 − 1/n) / n)
    dyr_i = (1/n) Σ_j std(C_·j) / std(pr_n)
    dys_i = n · dyr_i
A layer has the mean over its children. 1 is perfect routing, 0 a tree that never changes.

Departures: none.
Ambiguities:
1. n: the printed values fit only when it counts parents that are alive; dead parents are dropped,
   without renormalising the couplings, and dead children leave the mean. Both can be turned off.
2. std: over the population, so that perfect routing gives exactly 1.

dys is no count of parents in use: a child that switches evenly between 2 of 10 parents has dys
3.33.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.analysis.activity import Thresholds, dead_capsules
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import check_finite, last_coupling, lengths
from torchcaps.errors import TorchcapsError
from torchcaps.types import Capsules, LayerTrace, Trace

__all__ = ["LayerDynamics", "RoutingDynamics", "routing_dynamics"]


@dataclass(frozen=True)
class LayerDynamics:
    """Not a number (None in JSON: null) where fewer than two parents, or no child, are left."""

    name: str
    n_parents: int = quantity("capsules", "parents that count")
    n_children: int = quantity("capsules", "children that count")
    dyr: float | None = quantity("share of perfect routing", "how much the couplings change")
    dys: float | None = quantity("capsules", "dyr times parents")
    strongest: float = quantity("share of a child", "mean coupling to the favourite parent")
    even: float = quantity("share of a child", "the same under an even split")
    mean: Tensor = quantity("share of a child", "mean couplings")  # [i, j]
    std: Tensor = quantity("share of a child", "standard deviation of couplings")  # [i, j]


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
    """Measure every routed layer of a trace over its images."""
    if not trace:
        raise TorchcapsError(
            'the trace is empty; call the network with keep="last". A network without capsules has '
            "no "
            "trace at all."
        )
    rows = tuple(
        _measure(layer, thresholds, drop_dead_parents, drop_dead_children) for layer in trace
    )
    return RoutingDynamics(len(last_coupling(trace[0])), rows)


def perfect_std(n: int) -> float:
    """Standard deviation of a coupling under perfect routing to n parents; 0 for a single one."""
    return math.sqrt((1 - 1 / n) / n)


def _lengths(capsules: Capsules) -> Tensor:
    return lengths(capsules).detach().cpu().double()


def _measure(
    layer: LayerTrace, thresholds: Thresholds, drop_parents: bool, drop_children: bool
) -> LayerDynamics:
    coupling = last_coupling(layer).detach().cpu().double()  # [k, i, j]
    if coupling.ndim != 3:
        raise TorchcapsError(
            f"dynamics are measured over images, so a trace needs exactly one batch axis, but the "
            f"couplings of {layer.name} have shape {list(coupling.shape)}."
        )
    if len(coupling) < 2:
        raise TorchcapsError("dynamics compare images, so a trace needs at least two of them.")
    check_finite(layer.name, coupling)
    std = coupling.std(0, correction=0)
    parents = torch.ones(coupling.shape[2], dtype=torch.bool)
    children = torch.ones(coupling.shape[1], dtype=torch.bool)
    if drop_parents:
        parents = ~dead_capsules(_lengths(layer.routed.parents), thresholds)
    if drop_children:
        children = ~dead_capsules(_lengths(layer.children), thresholds)
    n, alive = int(parents.sum()), int(children.sum())
    dyr = None
    if n >= 2 and alive:
        dyr = float(std[children][:, parents].mean() / perfect_std(n))
    favourite = coupling.amax(-1)  # [k, i]
    splits = coupling.shape[1 if layer.normalised_over == "children" else 2]
    return LayerDynamics(
        name=layer.name,
        n_parents=n,
        n_children=alive,
        dyr=dyr,
        dys=None if dyr is None else n * dyr,
        strongest=float(favourite[:, children].mean() if alive else favourite.mean()),
        even=1 / splits,
        mean=coupling.mean(0),
        std=std,
    )
