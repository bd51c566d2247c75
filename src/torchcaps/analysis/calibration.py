"""Calibration: is an answer given with probability p right in a share p of cases?

With the images in bins by the probability of the most probable class, n_b of n in bin b:
    ece = Σ_b (n_b / n) |right_b − confidence_b|
where right_b is the share of right answers and confidence_b the mean probability. The same for
every pair of image and class asks whether a class of probability p is present in a share p.

Departures: none; the measure is not of a capsule paper.
Ambiguities: an answer is right if the class is among the labels. The number of bins moves the
error, so a sweep is reported.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchcaps._checks import check_count
from torchcaps.analysis.by_name import measured_as
from torchcaps.analysis.measure import Labelled
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import check_any, class_labels
from torchcaps.errors import TorchcapsError

SWEEP = (5, 10, 15, 30)


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram. `sweep` has (bins, error) for other numbers of bins."""

    name: str
    cases: int = quantity("cases", "answers, or pairs of image and class")
    error: float = quantity("share", "expected calibration error")
    counts: Tensor = quantity("cases", "cases in each bin")  # [bins]
    confidence: Tensor = quantity("share", "mean probability in each bin, 0 in empty ones")
    right: Tensor = quantity("share", "share of right cases in each bin, 0 in empty ones")
    sweep: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Calibration(Result):
    """Reliability of the most probable class, then of every class of every image."""

    answers: Reliability
    classes: Reliability


def reliability(probability: Tensor, right: Tensor, *, bins: int = 15) -> Tensor:
    """Give sums of cases, probabilities and right cases in each bin of [0, 1], float64 [3, bins].

    Arguments:
        probability: of each case, [n].
        right: bool [n].
        bins: how many bins of equal width; a border belongs to the bin above.

    >>> cases, probabilities, right = reliability(torch.rand(9), torch.rand(9) > 0.5)
    """
    index = (probability.double() * bins).floor().clamp(max=bins - 1).long()
    values = torch.stack([torch.ones_like(probability), probability, right.to(probability)])
    return torch.zeros(3, bins, dtype=torch.float64).index_add(1, index, values.double())


@measured_as("calibration")
class MeasureCalibration:
    """Reliability of `probabilities()`.

    Arguments:
        bins: bins of the diagram.
        sweep: numbers of bins for which the error is reported again.
    """

    def __init__(self, *, bins: int = 15, sweep: tuple[int, ...] = SWEEP) -> None:
        for each in (bins, *sweep):
            check_count("each of bins and sweep", each)
        self.bins, self.sweep = int(bins), tuple(map(int, sweep))
        self._sums = {
            (name, each): torch.zeros(3, each, dtype=torch.float64)
            for name in ("answers", "classes")
            for each in {bins, *sweep}
        }

    def update(self, out: Any, batch: Labelled) -> None:
        probability = out.probabilities().detach().cpu().double()
        if batch.labels is None:
            raise TorchcapsError("calibration compares with labels, but the batches have none.")
        if not bool(((probability >= 0) & (probability <= 1 + 1e-6)).all()):
            raise TorchcapsError(
                "probabilities lie between 0 and 1, but the network returns others; the lengths of "
                "unsquashed capsules are no probabilities."
            )
        labels = class_labels(batch.labels, probability.shape[1])
        present = torch.zeros_like(probability, dtype=torch.bool).scatter(1, labels, True)
        best = probability.argmax(-1, keepdim=True)
        self._add("answers", probability.gather(1, best), present.gather(1, best))
        self._add("classes", probability, present)

    def _add(self, name: str, probability: Tensor, right: Tensor) -> None:
        for (kind, bins), sums in self._sums.items():
            if kind == name:
                sums += reliability(probability.flatten(), right.flatten(), bins=bins)

    def result(self) -> Calibration:
        check_any(self._sums["answers", self.bins][0].nonzero().tolist())
        return Calibration(self._row("answers"), self._row("classes"))

    def _row(self, name: str) -> Reliability:
        counts, probability, right = self._sums[name, self.bins]
        least = counts.clamp(min=1)
        sweep = tuple((bins, _error(self._sums[name, bins])) for bins in self.sweep)
        error = _error(self._sums[name, self.bins])
        cases = int(counts.sum())
        return Reliability(name, cases, error, counts, probability / least, right / least, sweep)


def _error(sums: Tensor) -> float:
    counts, probability, right = sums
    return float((probability - right).abs().sum() / counts.sum())
