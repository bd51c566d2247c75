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

from torch import Tensor

from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import capsule_layers, check_finite, lengths
from torchcaps.errors import TorchcapsError
from torchcaps.types import Capsules, Trace

__all__ = ["Activity", "LayerActivity", "Thresholds", "capsule_activity", "dead_capsules"]

# Multiples of the thresholds at which counts are reported again.
SWEEP = (0.2, 0.5, 1.0, 2.0)


class Thresholds(NamedTuple):
    """Lengths from which a capsule counts as active, and up to which as dead."""

    active: float = 0.1
    dead_mean: float = 0.05
    dead_std: float = 0.05

    def times(self, factor: float) -> "Thresholds":
        return Thresholds(*(factor * value for value in self))


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
    """Measure every layer of capsules of a trace over its images."""
    named = capsule_layers(trace)
    for name, capsules in named:
        if lengths(capsules).ndim != 2:
            raise TorchcapsError(
                f"activity is measured over images, so a trace needs exactly one batch axis, but "
                f"the lengths of {name} have shape {list(lengths(capsules).shape)}."
            )
    rows = tuple(_measure(name, capsules, thresholds) for name, capsules in named)
    sweep = {}
    for name, capsules in named:
        scaled = [(f, _measure(name, capsules, thresholds.times(f))) for f in SWEEP]
        sweep[name] = tuple((factor, row.cas, row.cds) for factor, row in scaled)
    return Activity(len(lengths(named[0][1])), thresholds, rows, sweep)


def dead_capsules(length: Tensor, thresholds: Thresholds) -> Tensor:
    """Which of the capsules with lengths [k, n] are dead: bool [n]."""
    std = length.std(0, correction=0)
    return (length.mean(0) <= thresholds.dead_mean) & (std <= thresholds.dead_std)


def _measure(name: str, capsules: Capsules, thresholds: Thresholds) -> LayerActivity:
    length = lengths(capsules).detach().cpu().double()  # [k, n]
    check_finite(name, length)
    n = length.shape[1]
    cns = float(length.sum(1).mean())
    cas = float((length >= thresholds.active).double().sum(1).mean())
    dead = dead_capsules(length, thresholds)
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
        mean=length.mean(0),
        std=length.std(0, correction=0),
        dead=dead,
    )
