"""Semantic compactness: is a factor of the images one dimension of a capsule? [gu2021] §3.3

For one image and a list of changes of one factor (rotations, say), with the poses of the capsule of
its true class, D numbers each:
    p_d = Var(pose_d) / Σ_d Var(pose_d),    KL = Σ_d p_d log(p_d D)
and the score is the mean over images. 0 is an even spread, log D one dimension alone.

Departures: none.
Ambiguities: the logarithm is natural. An image whose pose never varies has no score; it is left out
and counted. "Never" means by no more than eight times the precision of the network's numbers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchcaps._checks import check_finite
from torchcaps.analysis.measure import Labelled, changed_pixels
from torchcaps.analysis.moments import Moments
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import check_any, labelled_classes
from torchcaps.errors import TorchcapsError, short

# By how many times the precision of its numbers rounding may move a pose that never varies.
ROUNDINGS = 8


@dataclass(frozen=True)
class FactorCompactness:
    """One factor. None where no image has a score."""

    factor: str
    score: float | None = quantity("nat", "mean divergence from an even spread over dimensions")
    most: float = quantity("nat", "log D, the score of one dimension alone")
    images: int = quantity("images", "images with a score")
    constant: int = quantity("images", "images whose pose never varies, left out")


@dataclass(frozen=True)
class Compactness(Result):
    """One row a factor."""

    factors: tuple[FactorCompactness, ...]


def compactness(pose: Tensor) -> Tensor:
    """Give the divergence of each image [k]; NaN for a pose that never varies.

    Arguments:
        pose: poses of k images, each under s changes, [k, s, d].

    >>> compactness(torch.tensor([[1.0, 0.0], [2.0, 0.0]])).shape  # doctest: +SKIP
    """
    variance = pose.double().var(1, correction=0)
    share = variance / variance.sum(-1, keepdim=True)
    entropy: Tensor = torch.special.entr(share).sum(-1)
    return math.log(pose.shape[-1]) - entropy


class MeasureCompactness:
    """Compactness of the capsules of the true classes.

    Arguments:
        network: the network that is measured, which looks at the changed images.
        factors: for each factor the changes of pixels along it, two or more, from one end to the
            other.
    """

    def __init__(
        self,
        network: Callable[[Tensor], Any],
        factors: Mapping[str, Sequence[Callable[[Tensor], Tensor]]],
    ) -> None:
        _check_factors(factors)
        self.network, self.factors = network, factors
        self._scores = {name: Moments() for name in factors}
        self._constant = dict.fromkeys(factors, 0)
        self._d = 1

    def update(self, out: Any, batch: Labelled) -> None:
        for name, changes in self.factors.items():
            images = (changed_pixels(name, change, batch.pixels) for change in changes)
            seen = [_true_pose(self.network, pixels, batch) for pixels in images]
            pose = torch.stack(seen, 1)  # [k, s, d]
            self._d = pose.shape[-1]
            rounding = ROUNDINGS * torch.finfo(pose.dtype).eps
            pose = pose.double()
            square = pose.square().sum(-1).mean(1)
            varies = pose.var(1, correction=0).sum(-1) > rounding**2 * square
            if bool(varies.any()):
                self._scores[name].add(compactness(pose[varies]))
            self._constant[name] += int((~varies).sum())

    def result(self) -> Compactness:
        check_any([n for n in self.factors if self._scores[n].count + self._constant[n]])
        rows = []
        for name, scores in self._scores.items():
            score = float(scores.mean) if scores.count else None
            most = math.log(self._d)
            rows.append(FactorCompactness(name, score, most, scores.count, self._constant[name]))
        return Compactness(tuple(rows))


def _check_factors(factors: Any) -> None:
    good = isinstance(factors, Mapping) and all(
        isinstance(changes, Sequence) and len(changes) > 1 and all(map(callable, changes))
        for changes in factors.values()
    )
    if not good:
        raise TorchcapsError(
            f"factors are lists of two functions of images or more by their names, "
            f'{{"turned": [left, right]}}, but came as {short(factors)}.'
        )


def _true_pose(network: Callable[[Tensor], Any], pixels: Tensor, batch: Labelled) -> Tensor:
    """Return the poses [k, d] of the capsules of the true classes."""
    with torch.no_grad():
        out = network(pixels)
    classes, labels = labelled_classes("compactness", out, batch.labels)
    pose = classes.pose.detach().cpu()
    check_finite("layer classes", pose)
    true: Tensor = pose[torch.arange(len(pose)), labels.cpu()]
    return true
