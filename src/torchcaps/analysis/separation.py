"""Separation: do the vectors of a class lie together, apart from those of others? [gu2021] Fig. 5

Of points x_i with classes, the silhouette of Rousseeuw, with a_i the mean distance to the others of
the own class and b_i the least mean distance to those of another:
    s_i = (b_i − a_i) / max(a_i, b_i),    silhouette = mean of s_i
and the share of points whose nearest centroid is that of the others of their class: a centroid that
holds the point itself is near it in many dimensions, whatever the classes are.

Departures: the paper shows a drawing; both numbers are ours.
Ambiguities: a point that is alone in its class, or lies where all others do, has s_i = 0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchcaps._checks import check_finite, check_shape
from torchcaps.analysis.measure import Labelled
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.sample import MOST, Sample
from torchcaps.analysis.trace import labelled_classes
from torchcaps.errors import TorchcapsError
from torchcaps.types import Capsules

# The other way loses the digits of points that lie near each other.
EXACT = "donot_use_mm_for_euclid_dist"


@dataclass(frozen=True)
class Separation(Result):
    """Separation of a sample of images; every class counts by its images."""

    images: int
    silhouette: float = quantity("share", "mean silhouette by class, from -1 to 1")
    nearest_centroid: float = quantity("share", "images nearest to the centroid of their class")


def silhouette(points: Tensor, labels: Tensor) -> Tensor:
    """Say how much nearer each point lies to its own class than to the next, from −1 to 1, [k].

    Arguments:
        points: [k, n].
        labels: classes, int64 [k]; two different ones at least.

    >>> silhouette(torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([0, 0, 1]))
    tensor([0.8889, 0.8750, 0.0000], dtype=torch.float64)
    """
    names, own = labels.unique(return_inverse=True)
    if len(names) < 2:
        raise TorchcapsError(
            f"separation compares classes, so the images must be of two at least, but they are of "
            f"{len(names)}."
        )
    member = torch.nn.functional.one_hot(own).double()  # [k, classes]
    distance = torch.cdist(points.double(), points.double(), compute_mode=EXACT)
    total, count = distance @ member, member.sum(0)
    others = count[own] - 1
    within = total.gather(1, own.unsqueeze(1)).squeeze(1) / others.clamp(min=1)
    between = (total / count).masked_fill(member.bool(), torch.inf).amin(1)
    longest = torch.maximum(within, between)
    counts = (others > 0) & (longest > 0)
    return torch.where(counts, (between - within) / longest, 0.0)


class MeasureSeparation:
    """Silhouette and nearest centroids of a vector an image, in a sample.

    Arguments:
        seen: from class capsules [b, k, d] and the true classes [b] to the vectors [b, n], such as
            what a decoder sees.
        sample: most images of the sample.
        seed: of the sample.
    """

    def __init__(
        self, seen: Callable[[Capsules, Tensor], Tensor], *, sample: int = MOST, seed: int = 0
    ) -> None:
        self.seen = seen
        self._sample = Sample(size=sample, seed=seed)

    def update(self, out: Any, batch: Labelled) -> None:
        classes, labels = labelled_classes("separation", out, batch.labels)
        points = self.seen(classes, labels).detach().cpu().double()
        check_shape("the result of seen(classes, labels)", points, (len(labels), "n"), "flatten it")
        check_finite("layer classes", points)
        self._sample.add(batch.pixels, labels, points)

    def result(self) -> Separation:
        labels, points = self._sample.columns()
        apart = float(silhouette(points, labels).mean())
        own = labels.unique(return_inverse=True)[1]
        member = torch.nn.functional.one_hot(own).double()
        centroid = member.T @ points / member.sum(0).unsqueeze(1)
        many = member.sum(0)[own]
        distance = torch.cdist(points, centroid, compute_mode=EXACT)
        # x − (Σ − x) / (n − 1) = (x − Σ / n) n / (n − 1), and no centroid is left of one point.
        distance[torch.arange(len(own)), own] *= many / (many - 1)
        right = distance.nan_to_num(nan=torch.inf).argmin(1) == own
        return Separation(len(points), apart, float(right.double().mean()))
