"""Two networks on the same images: which differences are more than chance. Only the test over folds
sees that the networks would be others if they were trained again."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torchcaps._extras import needing
from torchcaps.analysis.shares import Z
from torchcaps.study.intervals import t_quantile
from torchcaps.types import Output

with needing("scipy", room="study", extra="study"):
    from scipy import special, stats

# A difference that rounding alone makes has a smaller variance.
NOTHING = 1e-20


class Paired(NamedTuple):
    """By how much the first network lies above the second, its 95 % interval, and how often chance
    alone would bring as much; `why` says why one of them is missing."""

    difference: float | None
    interval: tuple[float, float] | None = None
    p: float | None = None
    why: str | None = None
    # How many images the first alone is right about, and the second.
    alone: tuple[int, int] | None = None


def mcnemar(first: Tensor, second: Tensor, groups: Sequence[str] | None = None) -> Paired:
    """Test which network is right more often, exactly [mcnemar1947]: were both as good, the two
    might exchange their answers about any image. Of a group they exchange all."""
    net = first.cpu().numpy().astype(int) - second.cpu().numpy()
    sizes = np.abs(np.bincount(_units(groups, len(net)), net).round().astype(int))
    # How likely each sum of the groups is, in steps of one.
    chances = np.ones(1)
    for size, count in zip(*np.unique(sizes[sizes > 0], return_counts=True), strict=True):
        steps = np.zeros(2 * size * count + 1)
        steps[:: 2 * size] = stats.binom.pmf(np.arange(count + 1), count, 0.5)
        chances = np.convolve(chances, steps)
    is_as_far = np.abs(np.arange(len(chances)) - len(chances) // 2) >= abs(net.sum())
    p = min(float(chances[is_as_far].sum()), 1.0)
    return Paired(float(net.mean()), None, p, None, (int((net > 0).sum()), int((net < 0).sum())))


def delong(
    first: Output, second: Output, labels: Tensor, groups: Sequence[str] | None = None
) -> Paired:
    """Test which network ranks images better, by the AUROC of each class against the rest, their
    mean [delong1988]. Classes keep their sizes; a group is one draw [obuchowski1997]."""
    label, k = labels.cpu().numpy(), first.scores.shape[1]
    counts = np.bincount(label, minlength=k)
    if not counts.all():
        return Paired(None, why="a class has no image")
    (one, of_one), (two, of_two) = _auroc(first, label), _auroc(second, label)
    effect, unit = of_one - of_two, _units(groups, len(label))
    sums = np.zeros((unit.max() + 1, k))
    np.add.at(sums, (unit, label), effect - (np.bincount(label, effect, k) / counts)[label])
    # Over how many units the images of each class are spread.
    spread = np.array([len(np.unique(unit[label == j])) for j in range(k)])
    if spread.min() < 2:
        return Paired(one - two, why="a class is in one group alone")
    own = (sums**2).sum(0)
    between = ((sums.sum(1) ** 2).sum() - own.sum()) * len(sums) / (len(sums) - 1)
    variance = float((own * spread / (spread - 1)).sum() + between)
    if variance < NOTHING:
        return Paired(one - two, why="no image makes a difference")
    error = math.sqrt(variance)
    p = float(2 * special.ndtr(-abs(one - two) / error))
    return Paired(one - two, _ends(one - two, Z * error), p)


def over_folds(first: Sequence[float | None], second: Sequence[float | None]) -> Paired:
    """Test a measure that both networks have of each fold, by the t-test of folds that share most
    of what is trained on: a variance counts 1/k + 1/(k - 1) times, not 1/k times [nadeau2003]."""
    pairs = [*zip(first, second, strict=True)]
    for fold in (at for at, pair in enumerate(pairs, 1) if None in pair):
        return Paired(None, why=f"fold {fold} does not show every class")
    less = np.array(pairs, dtype=float) @ (1, -1)
    k, mean = len(less), float(less.mean())
    variance = float(less.var(ddof=1)) * (1 / k + 1 / (k - 1))
    if variance < NOTHING:
        return Paired(mean, why="it is the same in all folds")
    error = math.sqrt(variance)
    p = float(2 * special.stdtr(k - 1, -abs(mean) / error))
    return Paired(mean, _ends(mean, t_quantile(0.975, k - 1) * error), p)


def holm(found: Sequence[float | None]) -> list[float | None]:
    """Correct p for how many there are [holm1979]; None stays, and counts for none."""
    order = sorted((p, at) for at, p in enumerate(found) if p is not None)
    corrected, least = list(found), 0.0
    for before, (p, at) in enumerate(order):
        corrected[at] = least = min(max(least, (len(order) - before) * p), 1.0)
    return corrected


def _auroc(out: Output, label: NDArray[np.int64]) -> tuple[float, NDArray[np.float64]]:
    """Give the mean AUROC over the classes, and the share of it that hangs on each image, [n]."""
    # As `class_measures` ranks them.
    scores = Output(out.scores.detach().cpu().double(), out.scores_are).probabilities().numpy()
    mean, effect = 0.0, np.zeros(len(label))
    for j, score in enumerate(scores.T):
        own, wins = label == j, stats.rankdata(score)
        for side in (own, ~own):
            wins[side] = (wins[side] - stats.rankdata(score[side])) / (~side).sum()
        # Other images win where they lie below.
        wins[~own] = 1 - wins[~own]
        mean += float(wins[own].mean()) / len(scores.T)
        effect += wins / np.where(own, own.sum(), (~own).sum()) / len(scores.T)
    return mean, effect


def _units(groups: Sequence[str] | None, n: int) -> NDArray[np.intp]:
    """Give the number of each image's group, or of the image."""
    return np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]


def _ends(middle: float, half: float) -> tuple[float, float]:
    """Give the ends of the interval of a difference of shares."""
    return max(middle - half, -1.0), min(middle + half, 1.0)
