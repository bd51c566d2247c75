"""Two networks on the same images: which differences are more than chance.

Three tests ask three things. McNemar's: whether one is right about images that the other is wrong
about, every image counting the same. DeLong's: whether one ranks images better. That of Nadeau and
Bengio: whether the difference would be there if the networks were trained again on other images of
the same kind; it alone sees that training varies.
"""

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
    alone would bring as much; `why` says why some of them are missing."""

    difference: float | None
    interval: tuple[float, float] | None = None
    p: float | None = None
    why: str | None = None


class McNemar(NamedTuple):
    """How many images each network alone is right about, and how often chance alone would share
    them out as unevenly."""

    first_alone: int
    second_alone: int
    p: float


def mcnemar(first: Tensor, second: Tensor, groups: Sequence[str] | None = None) -> McNemar:
    """Test which network is right more often, exactly [mcnemar1947]. Were both as good, each group
    might as well have the answers of the other network: all ways in which groups change sides are
    counted. Without groups every image does by itself.

    Arguments:
        first: whether the first is right about each image, bool [n].
        second: the same of the second.
        groups: the group of each image.
    """
    net = first.cpu().numpy().astype(int) - second.cpu().numpy().astype(int)
    by_group = np.bincount(_units(groups, len(net)), net).round().astype(int)
    sizes, counts = np.unique(np.abs(by_group), return_counts=True)
    # How probable each sum of the groups is, from the least to the greatest in steps of one.
    chances = np.ones(1)
    for size, count in zip(sizes, counts, strict=True):
        if size:
            steps = np.zeros(2 * size * count + 1)
            steps[:: 2 * size] = stats.binom.pmf(np.arange(count + 1), count, 0.5)
            chances = np.convolve(chances, steps)
    sums = np.arange(len(chances)) - len(chances) // 2
    p = float(chances[np.abs(sums) >= abs(net.sum())].sum())
    return McNemar(int((net > 0).sum()), int((net < 0).sum()), min(p, 1.0))


def delong(
    first: Output, second: Output, labels: Tensor, groups: Sequence[str] | None = None
) -> Paired:
    """Test which network ranks images better: by their AUROC, of each class against the rest and
    the mean over the classes [delong1988]. Classes keep their sizes, and images of a group, which
    may be alike, count as one draw [obuchowski1997].

    Arguments:
        first: the scores of n images.
        second: those of the other network.
        labels: the class of each, [n].
        groups: the group of each image.
    """
    label, k = labels.cpu().numpy(), first.scores.shape[1]
    counts = np.bincount(label, minlength=k)
    if not counts.all():
        return Paired(None, why="a class has no image")
    (one, of_one), (other, of_other) = (_auroc(each, label) for each in (first, second))
    difference, effect = one - other, of_one - of_other
    effect -= (np.bincount(label, effect, k) / counts)[label]
    unit = _units(groups, len(label))
    sums = np.zeros((unit.max() + 1, k))
    np.add.at(sums, (unit, label), effect)
    # Of units [u], in how many each class is.
    of_class = np.array([len(np.unique(unit[label == j])) for j in range(k)])
    if of_class.min() < 2:
        return Paired(difference, why="a class is in one group alone")
    own = (sums**2).sum(0)
    between = ((sums.sum(1) ** 2).sum() - own.sum()) * len(sums) / (len(sums) - 1)
    variance = float((own * of_class / (of_class - 1)).sum() + between)
    if variance < NOTHING:
        alike = "both rank all images alike" if difference == 0 else "no image varies"
        return Paired(difference, why=alike)
    error = math.sqrt(variance)
    interval = _within(difference - Z * error, difference + Z * error)
    return Paired(difference, interval, float(2 * special.ndtr(-abs(difference) / error)))


def over_folds(first: Sequence[float | None], second: Sequence[float | None]) -> Paired:
    """Test a measure that both networks have of each fold by the t-test of Nadeau and Bengio
    [nadeau2003]: folds share most of what is trained on, so that their variance is taken
    1/k + 1/(k - 1) times, and not 1/k times as of k independent numbers.

    Arguments:
        first: the measure of the first network, a value a fold; None where it is undefined.
        second: the same of the second.
    """
    pairs = list(zip(first, second, strict=True))
    lacking = [at for at, pair in enumerate(pairs, 1) if None in pair]
    if lacking:
        return Paired(None, why=f"fold {lacking[0]} does not show every class")
    less = np.array(pairs, dtype=float) @ (1, -1)
    k, mean = len(less), float(less.mean())
    variance = float(less.var(ddof=1)) * (1 / k + 1 / (k - 1))
    if variance < NOTHING:
        return Paired(mean, why="it is the same in all folds")
    half = t_quantile(0.975, k - 1) * math.sqrt(variance)
    p = 2 * special.stdtr(k - 1, -abs(mean) / math.sqrt(variance))
    return Paired(mean, _within(mean - half, mean + half), float(p))


def holm(found: Sequence[float | None]) -> list[float | None]:
    """Correct p for how many there are [holm1979]; None stays, and counts for none.

    >>> holm([0.01, 0.04, None])
    [0.02, 0.04, None]
    """
    order = sorted((p, at) for at, p in enumerate(found) if p is not None)
    corrected: list[float | None] = [None] * len(found)
    least = 0.0
    for before, (p, at) in enumerate(order):
        least = min(max(least, (len(order) - before) * p), 1.0)
        corrected[at] = least
    return corrected


def _auroc(out: Output, label: NDArray[np.int64]) -> tuple[float, NDArray[np.float64]]:
    """The mean AUROC over the classes, and the share of it that hangs on each image, [n]."""
    # As `class_measures` ranks them.
    scores = Output(out.scores.detach().cpu().double(), out.scores_are).probabilities().numpy()
    n, k = scores.shape
    mean, effect = 0.0, np.zeros(n)
    for j in range(k):
        own = label == j
        below = stats.rankdata(scores[:, j])
        for side in (own, ~own):
            below[side] -= stats.rankdata(scores[side, j])
        # How often an image of the class wins against the others, or another one loses.
        wins = np.where(own, below / (~own).sum(), 1 - below / own.sum())
        mean += float(wins[own].mean()) / k
        effect += wins / np.where(own, own.sum(), (~own).sum()) / k
    return mean, effect


def _units(groups: Sequence[str] | None, n: int) -> NDArray[np.intp]:
    """What is drawn as a whole: the number of each image's group, or of the image."""
    return np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]


def _within(low: float, high: float) -> tuple[float, float]:
    """The bounds of a difference of two shares."""
    return max(low, -1.0), min(high, 1.0)
