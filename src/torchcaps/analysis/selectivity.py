"""Entity selectivity: does a capsule stand for one part? After [mitterreiter2023], assumption 1.

With AUC_ip the area under the curve of ‖u_i‖ as a detector of "part p is present" (ties count one
half), the part of a capsule is the one with the best AUC. It is dedicated where that is at least
0.9 and the AUC for every other part at most 0.6, among images alike in the first part:
    selectivity = share of capsules alive that are dedicated
The control is the same of as many random linear read-outs of the layer.

Parts of a whole come together, so what detects one part alone tells something of others too, over
all images: on the part-whole set up to 0.74. Among images that have it, and among those that have
it not, it tells nothing.

Departures: the paper states the assumption; the formula is ours.
Ambiguities: none. A part that is in every image, or in none, detects nothing and is left out.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.analysis.activity import Thresholds, dead_capsules
from torchcaps.analysis.measure import Answer, Labelled, checked_parts
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.sample import MOST, Sample
from torchcaps.analysis.trace import capsule_layers, image_lengths
from torchcaps.errors import TorchcapsError

SWEEP = ((0.8, 0.6), (0.8, 0.7), (0.9, 0.6), (0.9, 0.7), (0.95, 0.6))


@dataclass(frozen=True)
class LayerSelectivity:
    """One layer. `sweep` has (best, second, share dedicated) for other thresholds."""

    name: str
    alive: int = quantity("capsules", "capsules alive")
    dedicated: float | None = quantity("share", "capsules alive that stand for one part")
    control: float | None = quantity("share", "the same of random linear read-outs")
    auc: Tensor = quantity("area", "of each capsule for each part")  # [i, parts]
    # The greatest of all parts but the first, [i].
    others: Tensor = quantity("area", "for other parts, among images alike in the first")
    sweep: tuple[tuple[float, float, float | None], ...] = ()


@dataclass(frozen=True)
class Selectivity(Result):
    """One row a layer, from primary capsules up; `parts` are those that tell images apart."""

    images: int
    parts: tuple[int, ...]
    layers: tuple[LayerSelectivity, ...]


def detection_auc(values: Tensor, present: Tensor) -> Tensor:
    """Give the area under the curve of each column as a detector, [n].

    Arguments:
        values: of k images, [k, n].
        present: which of the images hold what is to be detected, bool [k]; some and not all.

    >>> detection_auc(torch.tensor([[0.9], [0.2]]), torch.tensor([True, False]))
    tensor([1.], dtype=torch.float64)
    """
    positive = values[present].T.contiguous()  # [n, k present]
    negative = values[~present].T.sort(-1).values.contiguous()  # [n, k absent]
    below = torch.searchsorted(negative, positive)
    not_above = torch.searchsorted(negative, positive, right=True)
    area: Tensor = (below + not_above).double().mean(-1) / 2 / negative.shape[-1]
    return area


class MeasureSelectivity:
    """Shares of dedicated capsules, in a sample.

    Arguments:
        parts: from a batch to which parts its images hold, bool [b, parts].
        best: least AUC for its part of a dedicated capsule.
        second: greatest AUC for any other part, among images alike in the first.
        sweep: (best, second) at which the share is reported again.
        thresholds: which capsules are dead.
        sample: most images of the sample.
        seed: of the sample and of the random read-outs.
    """

    def __init__(
        self,
        parts: Callable[[Labelled], Tensor],
        *,
        best: float = 0.9,
        second: float = 0.6,
        sweep: tuple[tuple[float, float], ...] = SWEEP,
        thresholds: Thresholds = Thresholds(),
        sample: int = MOST,
        seed: int = 0,
    ) -> None:
        self.parts, self.best, self.second = parts, best, second
        self.sweep, self.thresholds, self.seed = sweep, thresholds, seed
        self._sample = Sample(size=sample, seed=seed)
        self._names: tuple[str, ...] = ()

    def update(self, out: Answer, batch: Labelled) -> None:
        named = capsule_layers(out.trace)
        self._names = tuple(name for name, _ in named)
        columns = []
        for name, capsules in named:
            length = image_lengths(name, capsules)
            flat = capsules.pose.detach().cpu().double().flatten(1)
            generator = torch.Generator().manual_seed(self.seed)
            chance = torch.randn(
                flat.shape[1], length.shape[1], generator=generator, dtype=flat.dtype
            )
            columns += [length, flat @ chance]
        parts = checked_parts(self.parts(batch), len(batch.pixels))
        self._sample.add(batch.pixels, parts.bool(), *columns)

    def result(self) -> Selectivity:
        present, *columns = self._sample.columns()
        share = present.double().mean(0)
        parts = ((share > 0) & (share < 1)).nonzero().flatten().tolist()
        if len(parts) < 2:
            raise TorchcapsError(
                f"selectivity compares parts, so at least two must be in some images and not in "
                f"others, but of {present.shape[1]} parts {len(parts)} are."
            )
        present = present[:, parts]
        pairs = zip(self._names, columns[::2], columns[1::2], strict=True)
        rows = tuple(self._row(*each, present) for each in pairs)
        return Selectivity(len(present), tuple(parts), rows)

    def _row(self, name: str, length: Tensor, chance: Tensor, present: Tensor) -> LayerSelectivity:
        auc, others = _areas(length, present)
        lives = ~dead_capsules(length, self.thresholds)
        alive = auc[lives], others[lives]
        return LayerSelectivity(
            name=name,
            alive=int(lives.sum()),
            dedicated=_dedicated(*alive, self.best, self.second),
            control=_dedicated(*_areas(chance, present), self.best, self.second),
            auc=auc,
            others=others,
            sweep=tuple((*each, _dedicated(*alive, *each)) for each in self.sweep),
        )


def _areas(values: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    """Return the area of each column for each part, [n, parts], and the greatest of others, [n]."""
    auc = torch.stack([detection_auc(values, part) for part in present.T], -1)
    first, others = auc.argmax(-1), torch.zeros(len(auc), dtype=auc.dtype)
    for own in first.unique():
        mine = first == own
        rest = (p for p in range(present.shape[1]) if p != own)
        areas = [_area_given(values[:, mine], present[:, p], present[:, own]) for p in rest]
        others[mine] = torch.stack(areas).amax(0)
    return auc, others


def _area_given(values: Tensor, present: Tensor, given: Tensor) -> Tensor:
    """Give the area over all pairs of images that are alike in `given`, or one less it where that
    is more: a length that falls tells of a part as well. One half where no pair is alike."""
    area, pairs = torch.zeros(values.shape[1], dtype=torch.float64), 0
    for images in (given, ~given):
        positive = int(present[images].sum())
        many = positive * (int(images.sum()) - positive)
        if many:
            found = detection_auc(values[images], present[images])
            area += many * torch.maximum(found, 1 - found)
            pairs += many
    return area / pairs if pairs else torch.full_like(area, 0.5)


def _dedicated(auc: Tensor, others: Tensor, best: float, second: float) -> float | None:
    if not len(auc):
        return None
    return float(((auc.amax(-1) >= best) & (others <= second)).double().mean())
