"""How far poses still move from one iteration to the next [tsai2020] §4.1.

For all capsules P of a layer and one image
    distance(t) = ‖P(t + 1) − P(t)‖ / ‖P(t)‖
and of it the median and the largest over images. A network is run with keep="steps", and beyond the
iterations it was trained with by `network(images, iterations=50, keep="steps")`.

Departures: none.
Ambiguities: none. Where P(t) is zero an image says nothing; where all say nothing there is no row.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from torchcaps.analysis.measure import Answer, Labelled
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import check_any, check_finite, check_trace, last_coupling
from torchcaps.errors import TorchcapsError
from torchcaps.types import Trace

__all__ = ["FixedPoint", "FixedPointStep", "MeasureFixedPoint"]


@dataclass(frozen=True)
class FixedPointStep:
    """One step of one layer, from iteration t to t + 1."""

    name: str
    iteration: int = quantity("iterations", "t, from 1")
    median: float = quantity("relative change", "of the poses of a layer, median over images")
    largest: float = quantity("relative change", "of the image whose poses move most")


@dataclass(frozen=True)
class FixedPoint(Result):
    """One row a step, layers from the bottom up."""

    images: int
    steps: tuple[FixedPointStep, ...]


class MeasureFixedPoint:
    """The relative change of poses in every step of every routed layer; needs keep="steps"."""

    def __init__(self) -> None:
        self._images = 0
        self._distances: dict[tuple[str, int], list[Tensor]] = {}

    def update(self, out: Answer, batch: Labelled) -> None:
        self.add(out.trace)

    def add(self, trace: Trace) -> None:
        """Measure the images of a trace."""
        check_trace(trace)
        self._images += len(last_coupling(trace[0]))
        for layer in trace:
            poses = [step.parents.pose.detach().cpu().double() for step in layer.routed.steps]
            for t, (before, after) in enumerate(pairwise(poses), start=1):
                check_finite(layer.name, after)
                length = before.flatten(1).norm(dim=1)
                distance = (after - before).flatten(1).norm(dim=1) / length
                self._distances.setdefault((layer.name, t), []).append(distance[length > 0])

    def merge(self, other: "MeasureFixedPoint") -> None:
        self._images += other._images
        for where, found in other._distances.items():
            self._distances.setdefault(where, []).extend(found)

    def result(self) -> FixedPoint:
        if self._images and not self._distances:
            raise TorchcapsError(
                "the trace holds one step a layer, and a fixed point shows between two; run the "
                'network with keep="steps" and two iterations or more.'
            )
        check_any(self._distances)
        rows = []
        for (name, t), found in self._distances.items():
            all_images = torch.cat(found)
            if len(all_images):
                median, largest = float(all_images.quantile(0.5)), float(all_images.max())
                rows.append(FixedPointStep(name, t, median, largest))
        return FixedPoint(self._images, tuple(rows))
