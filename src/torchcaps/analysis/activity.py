"""Capsule activity: how long, how often, and which capsules are dead [mitterreiter2023] §4.3.

For lengths ‖u_ij‖ of k images and n capsules:
    cns = (1/k) Σ_i Σ_j ‖u_ij‖           cnm = cns / n
    cas = (1/k) Σ_i Σ_j 1[‖u_ij‖ ≥ ε]    car = cas / n
    dead_j = mean_i ‖u_ij‖ ≤ ε₁ and std_i ‖u_ij‖ ≤ ε₂
    cds = Σ_j dead_j                     cdr = cds / n

Departures: the paper uses the symbol cns twice; the sum of dead capsules is cds, as in its Table 2.
Ambiguities: ε, ε₁ and ε₂ are not given. Defaults 0.1, 0.05, 0.05, and a sweep is always reported.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps._checks import check_type
from torchcaps.analysis.by_name import measured_as
from torchcaps.analysis.measure import OfTraces
from torchcaps.analysis.moments import Moments
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import capsule_layers, check_any, image_lengths
from torchcaps.types import Trace

# Multiples of the thresholds at which counts are reported again.
SWEEP = (0.2, 0.5, 1.0, 2.0)


class Thresholds(NamedTuple):
    """Lengths from which a capsule counts as active, and up to which as dead."""

    active: float = 0.1
    dead_mean: float = 0.05
    dead_std: float = 0.05

    def times(self, factor: float) -> "Thresholds":
        return Thresholds(*(factor * value for value in self))


def check_thresholds(thresholds: object) -> None:
    """Refuse a bare tuple, whose numbers have no names."""
    check_type("thresholds", thresholds, Thresholds, "name its numbers: Thresholds(active=0.1)")


@dataclass(frozen=True)
class LayerActivity:
    name: str
    n: int = quantity("capsules", "capsules in the layer")
    cns: float = quantity("length", "sum of lengths an image")
    cnm: float = quantity("length", "mean length of a capsule")
    cas: float = quantity("capsules", "active capsules an image")
    car: float = quantity("share", "share of capsules active")
    cds: int = quantity("capsules", "dead capsules")
    cdr: float = quantity("share", "share of capsules dead")
    mean: Tensor = quantity("length", "mean length of each capsule")  # [n]
    std: Tensor = quantity("length", "standard deviation of each capsule's length")  # [n]
    dead: Tensor = quantity("yes or no", "whether each capsule is dead")  # bool [n]


@dataclass(frozen=True)
class Activity(Result):
    """One row a layer, from primary capsules up; `sweep` has (factor, cas, cds) for each."""

    images: int
    thresholds: Thresholds
    layers: tuple[LayerActivity, ...]
    sweep: dict[str, tuple[tuple[float, float, int], ...]]


def capsule_activity(trace: Trace, *, thresholds: Thresholds = Thresholds()) -> Activity:
    """Measure every layer of capsules of a trace over its images.

    Arguments:
        trace: what `model(images, keep="last").trace` holds.
        thresholds: from which length a capsule counts as active, and below which it counts as dead.

    >>> capsule_activity(out.trace).layers[0].name
    """
    measurement = MeasureActivity(thresholds=thresholds)
    measurement.add(trace)
    return measurement.result()


@measured_as("activity")
class MeasureActivity(OfTraces):
    """Capsule activity of a stream of images; see `capsule_activity`."""

    def __init__(self, *, thresholds: Thresholds = Thresholds()) -> None:
        check_thresholds(thresholds)
        self.thresholds = thresholds
        self._length: dict[str, Moments] = {}
        # Active capsules an image, for each factor of the sweep.
        self._active: dict[str, Moments] = {}

    def add(self, trace: Trace) -> None:
        least = torch.tensor(SWEEP, dtype=torch.float64) * self.thresholds.active
        for name, capsules in capsule_layers(trace):
            length = image_lengths(name, capsules)
            active = torch.stack([(length >= each).double().sum(1) for each in least], -1)
            self._length.setdefault(name, Moments()).add(length)
            self._active.setdefault(name, Moments()).add(active)

    def result(self) -> Activity:
        check_any(self._length)
        images = next(iter(self._length.values())).count
        rows = tuple(self._row(name) for name in self._length)
        return Activity(images, self.thresholds, rows, {n: self._sweep(n) for n in self._length})

    def _row(self, name: str) -> LayerActivity:
        length = self._length[name]
        n = len(length.mean)
        cns = float(length.mean.sum())
        cas = float(self._active[name].mean[SWEEP.index(1.0)])
        dead = is_dead(length.mean, length.std, self.thresholds)
        cds = int(dead.sum())
        return LayerActivity(
            name=name,
            n=n,
            cns=cns,
            cnm=cns / n,
            cas=cas,
            car=cas / n,
            cds=cds,
            cdr=cds / n,
            mean=length.mean,
            std=length.std,
            dead=dead,
        )

    def _sweep(self, name: str) -> tuple[tuple[float, float, int], ...]:
        length, active = self._length[name], self._active[name].mean.tolist()
        dead = [is_dead(length.mean, length.std, self.thresholds.times(f)) for f in SWEEP]
        return tuple(
            (factor, cas, int(each.sum()))
            for factor, cas, each in zip(SWEEP, active, dead, strict=True)
        )


def dead_capsules(length: Tensor, thresholds: Thresholds) -> Tensor:
    """Say which of the capsules with lengths [k, n] are dead: bool [n]."""
    return is_dead(length.mean(0), length.std(0, correction=0), thresholds)


def is_dead(mean: Tensor, std: Tensor, thresholds: Thresholds) -> Tensor:
    """Say which of the capsules with these moments of length [n] are dead: bool [n]."""
    return (mean <= thresholds.dead_mean) & (std <= thresholds.dead_std)
