"""Polarisation: how near couplings are to one parent a child, by iteration [renzulli2025] §2.3.

For rows c_i of couplings to J parents, over children and images:
    pol = mean(1 − H(c_i) / log J),    strongest = mean(max_j c_ij)
0 is an even split, 1 one parent a child. An iteration is there where the trace kept it. The T-score
[peer2018] is the mean of pol over layers, each in its last iteration.

Departures: rows that do not sum to one, after a learned prior or where couplings sum to one over
children, are divided by their sums first; rows of zeros leave the means.
Ambiguities: none. A layer with one parent, or with negative couplings, has no polarisation.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps._checks import check_finite
from torchcaps.analysis.by_name import measured_as
from torchcaps.analysis.measure import OfTraces
from torchcaps.analysis.moments import Moments
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import check_any, check_trace, last_coupling
from torchcaps.types import Trace


@dataclass(frozen=True)
class StepPolarisation:
    """One iteration of one layer. Not a number (None, in JSON null) where nothing can be said."""

    name: str
    iteration: int = quantity("iterations", "which of the kept iterations, from 1")
    polarisation: float | None = quantity("share", "one minus the entropy over its maximum")
    strongest: float | None = quantity("share of a child", "mean coupling to the favourite parent")


@dataclass(frozen=True)
class Polarisation(Result):
    """One row an iteration, layers from the bottom up."""

    images: int
    steps: tuple[StepPolarisation, ...]
    t_score: float | None = quantity(
        "share", "T-score: mean over layers, each in its last iteration"
    )


def polarisation(coupling: Tensor) -> Tensor:
    """Say how one-sided couplings are, 1 − H / log J of each row [*b, i]: 0 where all parents get
    the same, 1 where one gets all; NaN for rows of zeros.

    Arguments:
        coupling: [*b, i, j].

    >>> polarisation(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    tensor([1., 0.])
    """
    share = coupling / coupling.sum(-1, keepdim=True)
    entropy: Tensor = torch.special.entr(share).sum(-1)
    return 1 - entropy / math.log(coupling.shape[-1])


@measured_as("polarisation", steps=True)
class MeasurePolarisation(OfTraces):
    """Polarisation of every kept iteration of every routed layer; all with keep="steps"."""

    def __init__(self) -> None:
        self._images = 0
        # Of (polarisation, strongest) over rows; None where a coupling was negative.
        self._steps: dict[tuple[str, int], Moments | None] = {}

    def add(self, trace: Trace) -> None:
        check_trace(trace)
        self._images += len(last_coupling(trace[0]))
        for layer in trace:
            last_coupling(layer)
            for number, step in enumerate(layer.routed.steps, 1):
                coupling = step.coupling.detach().cpu().double()
                check_finite(f"layer {layer.name}", coupling)
                seen = self._steps.setdefault((layer.name, number), Moments())
                if seen is None or coupling.shape[-1] < 2 or bool((coupling < 0).any()):
                    self._steps[layer.name, number] = None
                    continue
                rows = coupling.flatten(0, -2)
                rows = rows[rows.sum(-1) > 0]
                share = rows / rows.sum(-1, keepdim=True)
                seen.add(torch.stack([polarisation(rows), share.amax(-1)], -1))

    def result(self) -> Polarisation:
        check_any(self._steps)
        rows = []
        last: dict[str, float | None] = {}
        for (name, number), moments in self._steps.items():
            known = moments is not None and moments.count > 0
            pol, strongest = moments.mean.tolist() if known and moments else (None, None)
            rows.append(StepPolarisation(name, number, pol, strongest))
            last[name] = pol
        known_layers = [pol for pol in last.values() if pol is not None]
        t_score = math.fsum(known_layers) / len(known_layers) if known_layers else None
        return Polarisation(self._images, tuple(rows), t_score)
