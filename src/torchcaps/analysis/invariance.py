"""Viewpoint invariance: do lengths stay as images change? [mitterreiter2023] §4.2

For lengths v, w ∈ R^k of a capsule over k images and over the same images changed:
    corr = v · w / (‖v‖ ‖w‖)
A layer has the mean over its capsules. Lengths are not negative, so corr is near 1 already where
nothing corresponds; Pearson's correlation, the same of v − mean(v) and w − mean(w), stands beside
corr.

Departures: none.
Ambiguities: a capsule of no length has no corr, one that never varies has no Pearson correlation;
both are left out of the means and counted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.analysis.measure import Answer, Labelled, changed_pixels, check_changes
from torchcaps.analysis.moments import Moments
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import capsule_layers, check_any, image_lengths

# The part of its length by which a capsule varies at least: more than rounding in single precision.
VARIES = 8 * torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class LayerInvariance:
    """One layer under one change of its images. None where no capsule is left."""

    change: str
    name: str
    corr: float | None = quantity("cosine", "mean over capsules of the cosine of lengths")
    pearson: float | None = quantity("correlation", "mean over capsules of Pearson's correlation")
    silent: int = quantity("capsules", "capsules without length, left out of both means")
    constant: int = quantity("capsules", "capsules that never vary, left out of Pearson's")


@dataclass(frozen=True)
class Invariance(Result):
    """One row a change and layer, layers from primary capsules up."""

    images: int
    layers: tuple[LayerInvariance, ...]


class MeasureInvariance:
    """Invariance of every layer under each change of the images.

    Arguments:
        network: the network that is measured, which looks at the changed images too.
        changes: from pixels to changed pixels, by a name such as "rotation 30°".
    """

    def __init__(
        self,
        network: Callable[[Tensor], Answer],
        changes: Mapping[str, Callable[[Tensor], Tensor]],
    ) -> None:
        check_changes(changes)
        self.network, self.changes = network, changes
        # Of (v², w², v w) and of (v, w, v + w), for each capsule.
        self._layers: dict[tuple[str, str], tuple[Moments, Moments]] = {}

    def update(self, out: Answer, batch: Labelled) -> None:
        before = [(name, image_lengths(name, each)) for name, each in capsule_layers(out.trace)]
        for change, function in self.changes.items():
            pixels = changed_pixels(change, function, batch.pixels)
            with torch.no_grad():
                changed = capsule_layers(self.network(pixels).trace)
            for (name, v), (_, capsules) in zip(before, changed, strict=True):
                w = image_lengths(name, capsules)
                products, sums = self._layers.setdefault((change, name), (Moments(), Moments()))
                products.add(torch.stack([v**2, w**2, v * w], 1))
                sums.add(torch.stack([v, w, v + w], 1))

    def result(self) -> Invariance:
        check_any(self._layers)
        rows = tuple(_row(*where, *moments) for where, moments in self._layers.items())
        return Invariance(next(iter(self._layers.values()))[0].count, rows)


def _row(change: str, name: str, products: Moments, sums: Moments) -> LayerInvariance:
    v, w, both = products.mean
    heard = (v > 0) & (w > 0)
    var_v, var_w, var_sum = sums.variance
    varies = heard & (var_v > VARIES**2 * v) & (var_w > VARIES**2 * w)
    corr = (both / (v * w).sqrt())[heard]
    # The variance of a sum is that of its parts, and twice their covariance.
    pearson = ((var_sum - var_v - var_w) / 2 / (var_v * var_w).sqrt())[varies]
    return LayerInvariance(
        change=change,
        name=name,
        corr=float(corr.mean()) if len(corr) else None,
        pearson=float(pearson.mean()) if len(pearson) else None,
        silent=int((~heard).sum()),
        constant=int((heard & ~varies).sum()),
    )
