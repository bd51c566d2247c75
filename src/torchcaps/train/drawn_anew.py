"""How measures of classes vary when images are drawn anew, with replacement: the bootstrap."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

# Draws: fewer where one is much work, which is the number of images times that of classes.
MOST_DRAWS, FEWEST_DRAWS, WORK = 1000, 200, 10**8
# Numbers in memory at once.
AT_ONCE = 2**20
# Which share of the draws must have a measure, so that it has an interval.
ENOUGH = 0.9
# How far apart values of single precision lie that are equal.
ROUNDING = 1e-6


def drawn_anew(
    ranks: Tensor, said: Tensor, labels: Tensor, groups: Sequence[str] | None = None
) -> dict[str, Tensor]:
    """Take every measure of `measuring` in every draw, [draws, k]; NaN too where a draw lacks a
    class.

    Images are drawn within their class, which keeps its number; where they belong to groups, whole
    groups are drawn. The draws are always the same, and the order of the images changes nothing.
    """
    anew = DrawnAnew(ranks, labels, groups)
    measured = measuring(*(each[anew.order] for each in (ranks, said, labels)))
    parts = [measured(times) for times in anew]
    return {name: torch.cat([each[name] for each in parts]) for name in parts[0]}


def measuring(ranks: Tensor, said: Tensor, labels: Tensor) -> Callable[[Tensor], dict[str, Tensor]]:
    """Make the function that measures sensitivity, specificity, f1, auroc and average_precision of
    each class, [draws, k], of images that count so many times, [draws, n]; NaN where no image is of
    the class, or none of another.

    ranks: [n, k], the place of each image by its score for a class, as `ranks_of` gives it.
    said: the class that each image was taken for, [n].
    """
    k = ranks.shape[1]
    is_class, is_said = (one_hot(each, k).float() for each in (labels, said))
    curves = [_Curve(ranks[:, j], labels == j) for j in range(k)]

    def measured(times: Tensor) -> dict[str, Tensor]:
        there, named, hits = ((times @ x).double() for x in (is_class, is_said, is_class * is_said))
        drawn = times.sum(1, keepdim=True).double()
        areas = zip(*(curve.areas(times) for curve in curves), strict=True)
        auroc, precision = (torch.stack(each, dim=1) for each in areas)
        return {
            "sensitivity": hits / there,
            "specificity": (drawn - there - named + hits) / (drawn - there),
            "f1": torch.where(there > 0, 2 * hits / (there + named), torch.nan),
            "auroc": auroc,
            "average_precision": torch.where(there < drawn, precision, torch.nan),
        }

    return measured


def share_anew(right: Tensor, groups: Sequence[str]) -> Tensor:
    """Give the share of images, bool [n], that are right in every draw of whole groups, [draws]."""
    anew, hits = DrawnAnew(torch.zeros(len(right), 1), right, groups), right.float()
    return torch.cat([(times @ hits).double() / times.sum(1) for times in anew])


class DrawnAnew:
    """How often images are drawn, [some draws, n], always alike; they stand in `order`."""

    def __init__(
        self,
        ranks: Tensor,
        labels: Tensor,
        groups: Sequence[str] | None = None,
        most: int = MOST_DRAWS,
    ):
        n, k = ranks.shape
        self.count = min(max(WORK // (n * k), FEWEST_DRAWS), most)
        if groups is None:
            self.order = _by_content(labels, ranks)
            self._unit, self._stratum = torch.arange(n), labels[self.order]
        else:
            self.order = torch.arange(n)
            _, of_image = np.unique(np.asarray(groups), return_inverse=True)
            self._unit = torch.from_numpy(of_image)
            self._stratum = torch.zeros(int(self._unit.max()) + 1, dtype=torch.int64)

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(0)
        for some in torch.arange(self.count).split(max(AT_ONCE // len(self.order), 1)):
            # float32 counts to 16 million without an error.
            yield _times(len(some), self._stratum, generator)[:, self._unit]


def middle_of(draws: Tensor, value: float) -> tuple[float, float] | str:
    """Give the bounds of 95 % of the draws [draws] of a measure, corrected for the distance of
    their median from its value [efron1981], and with the value between them; or why there are none.

    A draw repeats images, which raises average precision and errors of calibration. Where it does
    by more than the draws differ, the correction would leave nothing but the nearest draw.
    """
    found = draws[~draws.isnan()]
    if len(found) < ENOUGH * len(draws):
        return "a class is in too few groups"
    equal = (found - value).abs() < ROUNDING
    if bool(equal.all()):
        return "images that are drawn anew give the same value"
    below = torch.where(equal, 0.5, (found < value).double()).mean()
    moved = 2 * torch.special.ndtri(below.clamp(1 / len(found), 1 - 1 / len(found)))
    at = torch.special.ndtr(moved + torch.special.ndtri(torch.tensor([0.025, 0.975]).double()))
    low, high = found.quantile(at).tolist()
    if low > value + ROUNDING or high < value - ROUNDING:
        return "nearly all draws lie on one side of the value"
    return min(low, value), max(high, value)


class _Curve:
    """The images by their scores for a class, as far as areas under curves need them."""

    def __init__(self, ranks: Tensor, is_class: Tensor):
        self.order = ranks.argsort(descending=True)
        # Of the class, the highest score first.
        self.own = self.order[is_class[self.order]]
        places, with_rank = ranks[self.own].unique_consecutive(return_counts=True)
        self.last = with_rank.cumsum(0) - 1
        count = ranks.bincount()
        not_lower = count.flip(0).cumsum(0).flip(0)
        # For each score of the class: how many images lie above it, and how many not below.
        self.above, self.not_below = (not_lower - count)[places], not_lower[places]

    def areas(self, times: Tensor) -> tuple[Tensor, Tensor]:
        """Measure AUROC and average precision [draws] of images that count so often, [draws, n]."""
        passed = pad(times[:, self.order].cumsum(1), (1, 0))
        hits = pad(times[:, self.own].cumsum(1)[:, self.last], (1, 0)).double()
        before, after = hits[:, :-1], hits[:, 1:]
        above, not_below = (passed[:, at].double() for at in (self.above, self.not_below))
        own, others = hits[:, -1], passed[:, -1] - hits[:, -1]
        new = after - before
        # An image of another class counts half where its score is equal.
        beaten = others[:, None] - (not_below - after + above - before) / 2
        auroc = (new * beaten).sum(1) / (own * others)
        return auroc, (new * after / not_below.clamp(min=1)).sum(1) / own


def _by_content(labels: Tensor, ranks: Tensor) -> Tensor:
    """Give an order of the images by what they are, class by class, whatever order they come in."""
    rows = np.ascontiguousarray(torch.cat([labels[:, None], ranks], dim=1).numpy())
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    return torch.from_numpy(whole.argsort(kind="stable"))


def _times(count: int, stratum: Tensor, generator: torch.Generator) -> Tensor:
    """Say how often each unit is drawn, [count, u]; units of a stratum [u] stand together."""
    _, member, sizes = stratum.unique_consecutive(return_inverse=True, return_counts=True)
    first, size = (sizes.cumsum(0) - sizes)[member], sizes[member]
    share = torch.rand(count, len(stratum), generator=generator, dtype=torch.float64)
    chosen = first + torch.minimum((share * size).long(), size - 1)
    return torch.zeros(share.shape).scatter_add_(1, chosen, torch.ones(share.shape))
