"""Near-antipodal inputs: pairs of images that a bias-free network cannot tell apart [peer2022] §1.

Over all pairs of k images, with all children of a layer as one vector x:
    share_τ = share of pairs with cos(x, y) ≤ −τ,    τ = 0.9
and the same child by child, as the mean over children.

Departures: the paper speaks of u and −u alone; the share of near ones is ours.
Ambiguities: a vector of zeros has no direction; its cosine counts as 0.
"""

from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from torchcaps._checks import check_finite
from torchcaps.analysis.by_name import measured_as
from torchcaps.analysis.measure import Answer, Labelled
from torchcaps.analysis.pairs import labels_or_none, names_of
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.sample import MOST, Sample
from torchcaps.analysis.trace import check_trace
from torchcaps.errors import TorchcapsError

SWEEP = (0.5, 0.7, 0.9, 0.99)


@dataclass(frozen=True)
class LayerAntipodal:
    """The children of one layer. `sweep` has (τ, share, share per child) for other thresholds."""

    name: str
    share: float = quantity("share of pairs", "pairs near antipodal, all children as one vector")
    per_child: float = quantity("share of pairs", "the same for one child, mean over children")
    different: float | None = quantity(
        "share of pairs", "near antipodal of the pairs with different labels"
    )
    lowest: float = quantity("cosine", "the cosine that 1 % of the pairs stay below")
    negative: float = quantity("share", "components of poses below zero")
    sweep: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True)
class Antipodal(Result):
    """One row a routed layer, from the bottom up; over a sample of `images`."""

    images: int
    threshold: float
    layers: tuple[LayerAntipodal, ...]


def pair_cosines(rows: Tensor) -> Tensor:
    """Give cosines of all pairs of rows [k, d], [k (k − 1) / 2], ordered (0, 1), (0, 2), … (1, 2),
    …

    Arguments:
        rows: [k, d]; those of half precision, whose lengths may have no number, in float32.

    >>> pair_cosines(torch.tensor([[1.0, 0.0], [-2.0, 0.0]]))
    tensor([-1.])
    """
    wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
    norm = wide.norm(dim=-1, keepdim=True)
    unit = wide / norm.where(norm > 0, 1)
    first, second = torch.triu_indices(len(rows), len(rows), 1)
    cosines: Tensor = (unit @ unit.T)[first, second]
    return cosines


def opposite_pairs(rows: Tensor, most: int) -> Tensor:
    """Give the pairs of rows that are nearest to opposite, int [pairs, 2], the nearest first.

    Between the gradients of such images `gradient_cancellation` looks for cancellation.

    Arguments:
        rows: one vector an image [k, d], such as all children of a layer as one vector.
        most: how many pairs; fewer are given where there are fewer.

    >>> opposite_pairs(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-2.0, 0.1]]), 1)
    tensor([[0, 2]])
    """
    if rows.ndim != 2 or len(rows) < 2 or most < 1:
        raise TorchcapsError(
            f"opposite pairs are looked for among two or more vectors [k, d], and at least one is "
            f"asked for, but came as {list(rows.shape)} and {most}; flatten poses first."
        )
    check_finite("vectors", rows, "leave their images out, or did training diverge?")
    nearest = pair_cosines(rows).argsort(stable=True)[:most]
    return torch.triu_indices(len(rows), len(rows), 1, device=rows.device).T[nearest]


@measured_as("antipodal")
class MeasureAntipodal:
    """Near-antipodal shares of the inputs of every routed layer, in a sample.

    Arguments:
        threshold: τ; a pair counts from a cosine of −τ down.
        sweep: thresholds at which the shares are reported again.
        sample: most images of the sample.
        seed: another seed draws another sample.
    """

    def __init__(
        self,
        *,
        threshold: float = 0.9,
        sweep: tuple[float, ...] = SWEEP,
        sample: int = MOST,
        seed: int = 0,
    ) -> None:
        self.threshold, self.sweep = threshold, sweep
        self._sample = Sample(size=sample, seed=seed)
        self._names: tuple[str, ...] = ()

    def update(self, out: Answer, batch: Labelled) -> None:
        check_trace(out.trace)
        for layer in out.trace:
            check_finite(f"layer {layer.name}", layer.children.pose)
        self._names = tuple(layer.name for layer in out.trace)
        poses = [layer.children.pose for layer in out.trace]
        self._sample.add(batch.pixels, labels_or_none(batch), *poses)

    def result(self) -> Antipodal:
        labels, *poses = self._sample.columns(least=2)
        names = torch.tensor(names_of(labels))
        first, second = torch.triu_indices(len(labels), len(labels), 1)
        differ = names[first] != names[second] if labels.numel() else torch.zeros(len(first)) > 0
        rows = [self._row(n, each, differ) for n, each in zip(self._names, poses, strict=True)]
        return Antipodal(len(labels), self.threshold, tuple(rows))

    def _row(self, name: str, pose: Tensor, differ: Tensor) -> LayerAntipodal:
        pose = pose.double()
        cosine = pair_cosines(pose.flatten(1))
        taus = (self.threshold, *self.sweep)
        whole = [_share(cosine, tau) for tau in taus]
        each = [[_share(x, tau) for tau in taus] for x in map(pair_cosines, pose.unbind(1))]
        child = [fmean(shares) for shares in zip(*each, strict=True)]
        return LayerAntipodal(
            name=name,
            share=whole[0],
            per_child=child[0],
            different=_share(cosine[differ], taus[0]) if bool(differ.any()) else None,
            lowest=float(cosine.quantile(0.01)),
            negative=float((pose < 0).double().mean()),
            sweep=tuple(zip(self.sweep, whole[1:], child[1:], strict=True)),
        )


def _share(cosine: Tensor, tau: float) -> float:
    # A billionth, so that the rounding of a sum of squares does not decide at τ = 1.
    return float((cosine <= -tau + 1e-9).double().mean())
