"""Curves behind the measures of classes, with bands of images that are drawn anew; calibration."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from torchcaps.analysis.calibration import reliability
from torchcaps.train.class_measures import Measure, ranks_of
from torchcaps.train.drawn_anew import ENOUGH, FEWEST_DRAWS, DrawnAnew, middle_of
from torchcaps.types import Output

BINS = 15
# Temperatures are from 1 / MOST to it: of answers that are all right the best would be 0.
MOST = 64.0
# A length of 0 or 1 has no finite logit.
NEAR = 1e-7
# Where bands are measured: false positive rates, and recalls.
GRID = np.linspace(0, 1, 101)


class ClassCurves(NamedTuple):
    """The curves of one class against the rest, from its highest score down, and their bands."""

    images: int
    false_positive: Tensor  # [m + 1], the first of no image
    recall: Tensor  # [m + 1], which is the true positive rate
    precision: Tensor  # [m + 1], of no image it is not a number
    # At GRID the ends of recall by false positive rate, then of precision by recall, [2, 2, 101];
    # None where too few draws have the curve.
    bands: Tensor | None


def class_curves(
    out: Output, labels: Tensor, groups: Sequence[str] | None = None
) -> list[ClassCurves | None]:
    """Find the curves of every class; None of a class that no image shows, or all of them."""
    ranks, labels = ranks_of(out), labels.cpu()
    anew = DrawnAnew(ranks, labels, groups, most=FEWEST_DRAWS)
    of_class = ranks[anew.order].unbind(1)
    return [_curves(each, labels[anew.order] == k, anew) for k, each in enumerate(of_class)]


def _curves(ranks: Tensor, is_class: Tensor, anew: DrawnAnew) -> ClassCurves | None:
    if len(is_class.unique()) < 2:
        return None
    order = ranks.argsort(descending=True, stable=True)
    own = is_class[order].double()
    # Images with equal scores are named together: curves have a point where the last of them is.
    ends = ranks[order].unique_consecutive(return_counts=True)[1].cumsum(0) - 1

    def rates(times: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weight = times[:, order].double()
        hits, misses = (pad((weight * x).cumsum(1)[:, ends], (1, 0)) for x in (own, 1 - own))
        return misses / misses[:, -1:], hits / hits[:, -1:], hits / (hits + misses)

    drawn = []
    for times in anew:
        for x, y, p in zip(*(each.numpy() for each in rates(times)), strict=True):
            # A ROC curve is straight between its points; precision is that of the first score at
            # which a recall is reached.
            first = np.searchsorted(y, (GRID - 1e-12).clip(1e-12)).clip(max=len(y) - 1)
            drawn.append((np.interp(GRID, x, y), p[first]))
    kept = np.array([each for each in drawn if not np.isnan(each).any()])
    enough = len(kept) >= ENOUGH * len(drawn)
    bands = torch.tensor(np.quantile(kept, [0.025, 0.975], axis=0)) if enough else None
    x, y, p = (each[0] for each in rates(torch.ones(1, len(order))))
    return ClassCurves(int(own.sum()), x, y, p, bands)


def calibrated(
    out: Output, labels: Tensor, groups: Sequence[str] | None = None
) -> tuple[Tensor, Measure]:
    """Sum answers, probabilities and right ones in bins, [3, bins], and measure the error."""
    exact = Output(out.scores.detach().cpu().double(), out.scores_are).probabilities()
    probability, said = exact.max(-1)
    right = said == labels.cpu()
    sums = reliability(probability, right, bins=BINS)
    bins = one_hot((probability * BINS).floor().clamp(max=BINS - 1).long(), BINS)
    anew = DrawnAnew(ranks_of(out), labels.cpu(), groups)
    gap = (bins * (probability - right.double())[:, None])[anew.order]
    draws = [(times.double() @ gap).abs().sum(1) / times.sum(1) for times in anew]
    error = float((sums[1] - sums[2]).abs().sum() / len(right))
    found = middle_of(torch.cat(draws), error)
    return sums, Measure(error, None, found) if isinstance(found, str) else Measure(error, found)


def temperature(out: Output, labels: Tensor) -> float:
    """Find the number by which to divide logits so that labels are likeliest [guo2017] §4.2, of
    images that are neither trained on nor tested. No answer changes. The paper knows a softmax;
    independent logits go through a sigmoid, and the logit of a length p is log(p / (1 − p))."""
    z, there = _logits(out), one_hot(labels.cpu(), out.scores.shape[1]).double()
    low, high = 1 / MOST, MOST
    # The likelihood is concave in 1 / T: bisection of its slope.
    for _ in range(80):
        middle = math.sqrt(low * high)
        p = (middle * z).softmax(-1) if out.scores_are == "logits" else (middle * z).sigmoid()
        low, high = (low, middle) if float((z * (p - there)).sum()) > 0 else (middle, high)
    return 1 / math.sqrt(low * high)


def at_temperature(out: Output, temperature: float) -> Output:
    """Give scores as they are at a temperature."""
    z = _logits(out) / temperature
    return Output(z.sigmoid() if out.scores_are == "lengths" else z, out.scores_are)


def _logits(out: Output) -> Tensor:
    scores = out.scores.detach().cpu().double()
    return scores.logit(NEAR) if out.scores_are == "lengths" else scores
