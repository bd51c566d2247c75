"""Inequality of couplings: how unevenly a child shares itself out [renzulli2025] Fig. 13.

For a row c_i of couplings to J parents, sorted upwards as c_(1) ≤ … ≤ c_(J), over children and
images:
    small = share of couplings with c_ij < 1 / (2 J)
    even = share of couplings on the same of eleven levels as 1 / J
    gini = mean over rows of Σ_k (2 k − J − 1) c_(k) / (J Σ_k c_(k))
An even split has no small coupling and a Gini coefficient of 0; one parent a child 1 − 1/J of both.

Departures: the paper shows histograms, "sparser" by eye; both numbers are ours.
Ambiguities: Gini is of each child's own row, since the children of a layer weigh the same. "Below"
means by more than a millionth, because the rounding of a grid with a level there would decide
otherwise. A row of zeros is an even split; a layer with a negative coupling has no Gini. Couplings
that sum to one over children, or over all positions, are first multiplied by what makes an even
split 1 / J.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.analysis.by_name import measured_as
from torchcaps.analysis.even_split import comparable_coupling
from torchcaps.analysis.measure import OfTraces
from torchcaps.analysis.moments import Moments
from torchcaps.analysis.quantise import quantised_index
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import check_any, check_trace
from torchcaps.types import Trace

# Shares of an even split, and levels of a grid, at which a layer is reported again.
SWEEP, LEVELS = (0.1, 0.25, 0.5, 0.75), (6, 11, 21, 129)
# Levels of the grid that `even` is of.
EVEN = 11


@dataclass(frozen=True)
class LayerInequality:
    """One routed layer; gini is None where a coupling is negative. `sweep` has (share of an even
    split, couplings below it), `levels` has (levels, couplings on that of an even split)."""

    name: str
    small: float = quantity("share", "couplings below half of an even split")
    even: float = quantity("share", "couplings on the level that an even split has on a grid of 11")
    gini: float | None = quantity("share", "mean Gini coefficient of a child's couplings")
    sweep: tuple[tuple[float, float], ...] = ()
    levels: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Inequality(Result):
    """One row a routed layer, from the bottom up."""

    images: int
    layers: tuple[LayerInequality, ...]


def gini(coupling: Tensor) -> Tensor:
    """Compute the Gini coefficient of each row [*b, i]: 0 where all parents get the same, 1 − 1/J
    where one gets all; NaN for rows with negative couplings.

    Arguments:
        coupling: [*b, i, j].

    >>> gini(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    tensor([0.5000, 0.0000])
    """
    n = coupling.shape[-1]
    total = coupling.sum(-1)
    rank = torch.arange(1 - n, n, 2, dtype=coupling.dtype, device=coupling.device)
    above = (coupling.sort(-1).values * rank).sum(-1)
    index = torch.where(total > 0, above / (n * total), 0.0)
    return torch.where((coupling < 0).any(-1), math.nan, index)


@measured_as("inequality")
class MeasureInequality(OfTraces):
    """Small couplings and Gini coefficients of every routed layer.

    Arguments:
        levels: grids at which couplings on the level of an even split are reported again.
        grid: the levels that couplings have been rounded to before, one number or one for each
            routed layer; then `even` is of these, and a coupling on the level of an even split is
            not small, whatever it was rounded to.
    """

    def __init__(
        self, *, levels: tuple[int, ...] = LEVELS, grid: int | Sequence[int] | None = None
    ) -> None:
        self.levels, self.grid = levels, grid
        self._grids = tuple(dict.fromkeys((EVEN, *levels)))
        # Of (gini, each of the sweep, the own grid, each of the grids), over images.
        self._layers: dict[str, Moments] = {}

    def add(self, trace: Trace) -> None:
        check_trace(trace)
        for number, layer in enumerate(trace):
            coupling = comparable_coupling(layer)
            split = 1 / coupling.shape[-1]
            small = [coupling < (1 - 1e-6) * split * share for share in SWEEP]
            even = [_on_its_level(coupling, split, levels) for levels in self._grids]
            # Rounded couplings are even by the grid they are on, whatever others are asked for.
            own = even[0]
            if self.grid is not None:
                on = self.grid if isinstance(self.grid, int) else self.grid[number]
                own = _on_its_level(coupling, split, on)
                small = [each & ~own for each in small]
            shares = (gini(coupling), *small, own, *even)
            each = [share.double().flatten(1).mean(1) for share in shares]
            self._layers.setdefault(layer.name, Moments()).add(torch.stack(each, -1))

    def result(self) -> Inequality:
        check_any(self._layers)
        rows = []
        for name, moments in self._layers.items():
            index, *shares = moments.mean.tolist()
            small = dict(zip(SWEEP, shares, strict=False))
            own, *on_grids = shares[len(SWEEP) :]
            even = dict(zip(self._grids, on_grids, strict=True))
            known = None if math.isnan(index) else index
            sweep, levels = tuple(small.items()), tuple((k, even[k]) for k in self.levels)
            rows.append(LayerInequality(name, small[0.5], own, known, sweep, levels))
        return Inequality(next(iter(self._layers.values())).count, tuple(rows))


def _on_its_level(coupling: Tensor, split: float, levels: int) -> Tensor:
    """Say which couplings have the level that an even split has."""
    level = quantised_index(torch.full((), split, dtype=torch.float64), levels=levels)
    return quantised_index(coupling, levels=levels) == level
