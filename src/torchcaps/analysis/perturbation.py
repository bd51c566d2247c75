"""Perturbation: how much a drawing changes as one component of a class capsule moves.

For what the decoder sees of an image, x, and each component d of the capsule of its true class,
with drawings D of n pixels [gu2021] Fig. 4:
    change(a) = mean over images and components of sqrt(Σ (D(x + a e_d) − D(x))² / n)

Departures: the paper shows drawings; the number is ours.
Ambiguities: a component moves up alone, since the paper's rows go both ways from the drawing as it
is. It moves by the same amount whatever its scale, which is the paper's point: squashed components
are at most 1, others have no bound.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchcaps._checks import check_finite, check_shape
from torchcaps.analysis.measure import Labelled
from torchcaps.analysis.moments import Moments
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.trace import check_any, labelled_classes
from torchcaps.errors import TorchcapsError, short
from torchcaps.types import Capsules

# The ends of the two ranges of [gu2021] Fig. 4.
AMOUNTS = (0.2, 8.0)


@dataclass(frozen=True)
class ComponentChange:
    """Changes by one amount by which components move."""

    amount: float
    change: float = quantity("of a pixel's range", "root mean square change of a drawing's pixels")
    each: Tensor = quantity("of a pixel's range", "the same of each component")  # [d]


@dataclass(frozen=True)
class Perturbation(Result):
    """One row an amount."""

    images: int
    amounts: tuple[ComponentChange, ...]


class MeasurePerturbation:
    """Changes of drawings.

    Arguments:
        seen: from class capsules [b, k, d] and the true classes [b] to what the decoder sees,
            [b, k · d].
        draw: from there to pixels [b, ...].
        amounts: by which a component moves.
    """

    def __init__(
        self,
        seen: Callable[[Capsules, Tensor], Tensor],
        draw: Callable[[Tensor], Tensor],
        *,
        amounts: Sequence[float] = AMOUNTS,
    ) -> None:
        if not isinstance(amounts, Sequence) or not amounts:
            raise TorchcapsError(
                f"components are moved by a list of amounts, amounts=(0.2, 8.0), but amounts came "
                f"as {short(amounts)}."
            )
        self.seen, self.draw, self.amounts = seen, draw, tuple(amounts)
        self._changes = Moments()  # [amounts, d]

    @torch.no_grad()
    def update(self, out: Any, batch: Labelled) -> None:
        classes, labels = labelled_classes("perturbation", out, batch.labels)
        seen = self.seen(classes, labels)
        images, n, d = classes.pose.shape
        so = "the poses of all classes stand in a row; Decoder.seen gives them"
        check_shape("the result of seen(classes, labels)", seen, (images, n * d), so)
        check_finite("layer classes", seen)
        drawn = self._drawn(seen)
        rows = []
        for amount in self.amounts:
            for component in range(d):
                moved = seen.scatter_add(
                    1, (labels * d + component).unsqueeze(1), torch.full_like(seen[:, :1], amount)
                )
                apart = (self._drawn(moved) - drawn).flatten(1)
                rows.append(apart.square().mean(1).sqrt())
        self._changes.add(torch.stack(rows, 1).unflatten(1, (len(self.amounts), d)))

    def _drawn(self, seen: Tensor) -> Tensor:
        pixels = self.draw(seen).double()
        so = "did training diverge, or does the decoder divide by what may be zero?"
        check_finite("drawings", pixels, so)
        return pixels

    def result(self) -> Perturbation:
        check_any(range(self._changes.count))
        rows = zip(self.amounts, self._changes.mean, strict=True)
        return Perturbation(
            self._changes.count,
            tuple(ComponentChange(amount, float(each.mean()), each) for amount, each in rows),
        )
