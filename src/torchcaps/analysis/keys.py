"""How many different parse trees a class has [renzulli2025] §3.1.3, Eqs. 14 and 15.

The key of an image with predicted class ŷ is the string of quantised couplings of all children of
the last layer to ŷ. With P the share of a key among the images predicted ŷ = j:
    ℍ_j = − Σ_keys P log₂ P ≤ log₂(images predicted j),    ℍ = mean_j ℍ_j

Departures: none.
Ambiguities:
1. Eq. 14 sums over images literally; here each different key counts once.
2. A class that is never predicted has ℍ_j = 0 and stays in the mean.
3. The number of levels is chosen by accuracy in the paper; here it is an argument, with a sweep.

A key is kept as a digest of 128 bits, so memory grows by the number of different keys alone.
"""

import hashlib
import math
from collections import Counter
from dataclasses import dataclass

from torch import Tensor

from torchcaps._checks import check_count
from torchcaps.analysis.by_name import measured_as
from torchcaps.analysis.measure import Answer, Labelled
from torchcaps.analysis.quantise import quantised_index
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import (
    check_any,
    check_parents_are_classes,
    check_trace,
    class_coupling,
    last_coupling,
    predicted_classes,
)
from torchcaps.types import Trace

SWEEP = (6, 11, 21, 129)


@dataclass(frozen=True)
class ClassKeys:
    """One class. `counts` is its dictionary without the keys: images of each, most first."""

    name: str
    images: int = quantity("images", "images predicted as this class")
    keys: int = quantity("keys", "different trees of the class")
    entropy: float = quantity("bit", "entropy of the keys")
    bound: float = quantity("bit", "entropy if every image had a key of its own")
    counts: tuple[int, ...] = quantity("images", "images of each key")


@dataclass(frozen=True)
class Keys(Result):
    """Keys at `levels`; `sweep` has (levels, mean entropy, all keys) for each other grid."""

    images: int
    levels: int
    classes: tuple[ClassKeys, ...]
    entropy: float = quantity("bit", "mean entropy of the classes")
    bound: float = quantity("bit", "mean bound of the classes")
    sweep: tuple[tuple[int, float, int], ...] = ()


def key_entropy(counts: Counter[bytes] | tuple[int, ...]) -> float:
    """Compute the entropy in bit of keys that came so many times each; 0 of none.

    Arguments:
        counts: how often each key came.

    >>> key_entropy((1, 1))
    1.0
    """
    each = list(counts.values()) if isinstance(counts, Counter) else list(counts)
    total = sum(each)
    # log₂(total / n) and not −log₂(n / total): one key has exactly 0, and never −0.
    return math.fsum(n / total * math.log2(total / n) for n in each)


@measured_as("keys")
class MeasureKeys:
    """Different parse trees of each predicted class, from the couplings of the last layer.

    Arguments:
        levels: levels of the grid from 0 to 1.
        sweep: grids at which entropy and keys are reported again.
    """

    def __init__(self, *, levels: int = 11, sweep: tuple[int, ...] = SWEEP) -> None:
        for each in (levels, *sweep):
            check_count("each of levels and sweep", each, least=2)
        self.levels, self.sweep = int(levels), tuple(map(int, sweep))
        self._counts: dict[tuple[int, int], Counter[bytes]] = {}
        self._classes = self._images = 0

    def update(self, out: Answer, batch: Labelled) -> None:
        check_trace(out.trace)
        check_parents_are_classes(out.trace, out.scores.shape[1])
        self.add(out.trace, predicted_classes(out.scores, batch.labels))

    def add(self, trace: Trace, predicted: Tensor) -> None:
        """Count the keys of images with predicted classes [k], or [k, m]: a key for each."""
        self._classes = trace[-1].routed.parents.pose.shape[-2]
        self._images += len(predicted)
        for labels in predicted.view(len(predicted), -1).unbind(1):
            # As `quantise` sees them: what counts as half way depends on the dtype.
            coupling = class_coupling(trace, labels).to(last_coupling(trace[-1]).dtype)  # [k, i]
            for levels in {self.levels, *self.sweep}:
                rows = quantised_index(coupling, levels=levels).numpy()
                for label, row in zip(labels.tolist(), rows, strict=True):
                    key = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
                    self._counts.setdefault((levels, label), Counter())[key] += 1

    def dictionary(self, label: int) -> dict[bytes, int]:
        """Count the images of each key of a class, by the digest of the key."""
        return dict(self._counts.get((self.levels, label), {}))

    def result(self) -> Keys:
        check_any(self._counts)
        rows = tuple(self._row(label, self.levels) for label in range(self._classes))
        sweep = []
        for levels in self.sweep:
            each = [self._row(label, levels) for label in range(self._classes)]
            sweep.append((levels, _mean(each, "entropy"), sum(row.keys for row in each)))
        entropy, bound = _mean(rows, "entropy"), _mean(rows, "bound")
        return Keys(self._images, self.levels, rows, entropy, bound, tuple(sweep))

    def _row(self, label: int, levels: int) -> ClassKeys:
        counts = tuple(sorted(self._counts.get((levels, label), {}).values(), reverse=True))
        images = sum(counts)
        bound = math.log2(images) if images else 0.0
        return ClassKeys(str(label), images, len(counts), key_entropy(counts), bound, counts)


def _mean(rows: tuple[ClassKeys, ...] | list[ClassKeys], name: str) -> float:
    return math.fsum(getattr(row, name) for row in rows) / len(rows)
