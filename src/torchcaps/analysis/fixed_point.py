"""How far poses still move from one iteration to the next [tsai2020] §4.1.

For all capsules P of a layer and one image
    distance(t) = ‖P(t + 1) − P(t)‖ / ‖P(t)‖
and of it the median over a sample of images and the largest over all. A network is run with
keep="steps", and beyond the iterations it was trained with by
`network(images, iterations=50, keep="steps")`.

Departures: none.
Ambiguities: none. Where P(t) is zero an image says nothing; where all say nothing there is no row.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from torchcaps._checks import check_finite
from torchcaps.analysis.measure import Answer, Labelled
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.sample import MOST, Sample
from torchcaps.analysis.trace import check_any, check_trace, last_coupling
from torchcaps.errors import TorchcapsError
from torchcaps.types import Trace


@dataclass(frozen=True)
class FixedPointStep:
    """One step of one layer, from iteration t to t + 1."""

    name: str
    iteration: int = quantity("iterations", "t of the step from t to t + 1, from 1")
    median: float = quantity(
        "relative change", "how far the poses of a layer move, median of a sample"
    )
    largest: float = quantity("relative change", "the same of the image whose poses move most")


@dataclass(frozen=True)
class FixedPoint(Result):
    """One row a step, layers from the bottom up."""

    images: int
    steps: tuple[FixedPointStep, ...]


class MeasureFixedPoint:
    """The relative change of poses in every step of every routed layer; needs keep="steps".

    Arguments:
        sample: most images of the sample that medians are taken of.
        seed: another seed draws another sample.
    """

    def __init__(self, *, sample: int = MOST, seed: int = 0) -> None:
        self._images = 0
        self._largest: dict[tuple[str, int], Tensor] = {}
        self._sample = Sample(size=sample, seed=seed)

    def update(self, out: Answer, batch: Labelled) -> None:
        self.add(out.trace, batch.pixels)

    def add(self, trace: Trace, pixels: Tensor) -> None:
        """Measure the images of a trace; their pixels [k, ...] draw the sample."""
        check_trace(trace)
        self._images += len(last_coupling(trace[0]))
        moved = _distances(trace)
        for where, distance in moved.items():
            largest = distance.nan_to_num(-1).max()
            self._largest[where] = torch.maximum(self._largest.get(where, largest), largest)
        if moved:
            self._sample.add(pixels, torch.stack([*moved.values()], -1))

    def result(self) -> FixedPoint:
        if self._images and not self._largest:
            raise TorchcapsError(
                "a fixed point is seen by comparing two steps, but the trace holds one a layer; "
                'run the network with keep="steps" and two iterations or more.'
            )
        check_any(self._largest)
        (distances,) = self._sample.columns()  # [k, steps]
        rows = []
        for ((name, t), largest), distance in zip(
            self._largest.items(), distances.unbind(-1), strict=True
        ):
            if not bool(distance.isnan().all()):
                rows.append(
                    FixedPointStep(name, t, float(distance.nanquantile(0.5)), float(largest))
                )
        return FixedPoint(self._images, tuple(rows))


def _distances(trace: Trace) -> dict[tuple[str, int], Tensor]:
    """Return the distance of every step of every layer, [k]; NaN where P(t) is zero."""
    found = {}
    for layer in trace:
        poses = [step.parents.pose.detach().cpu().double() for step in layer.routed.steps]
        for t, (before, after) in enumerate(pairwise(poses), start=1):
            check_finite(f"layer {layer.name}", after)
            length = before.flatten(1).norm(dim=1)
            distance = (after - before).flatten(1).norm(dim=1) / length
            found[layer.name, t] = distance.where(length > 0, torch.nan)
    return found
