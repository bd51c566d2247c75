"""DiverseMultiMNIST of [tsai2020] App. B.2: one digit or two of different classes, always new ones.

A network has it right when the set of digits that it names is that of the labels; it is not told
how many there are.

Departures:
1. As many images an epoch as the base has digits. Of all training digits of MNIST that is 60,000,
   as in the paper; digits held out for validation are missed in training.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.data.batch import Batch, JudgedBy
from torchcaps.data.draws import integers
from torchcaps.data.make.pairs import ALONE, FIRST, Pairs
from torchcaps.data.read.idx import OF_MNIST, mnist
from torchcaps.data.registry import Root, Split, file_set


@dataclass(frozen=True, kw_only=True)
class DiverseMultiMnist(Pairs):
    """One image in six shows a single digit, the others two: all digits are drawn anew each time.

    Labels are the two classes [b, 2], and the class of a single digit twice; `parts` are both
    digits alone, and a single digit twice.
    """

    @property
    def name(self) -> str:
        return f"diverse-multi-{self.base.name}"

    @property
    def judged_by(self) -> JudgedBy:
        return "set"

    def _make(self, source: Tensor, sample: Tensor) -> Batch:
        first = integers(self.seed, sample, FIRST, 1, len(self.base))[:, 0]
        digits = torch.stack([first, self._partner(first, sample)], 1)
        parts = self._alone(digits, sample)
        alone = integers(self.seed, sample, ALONE, 1, 6)[:, 0] == 0
        digits[:, 1] = torch.where(alone, first, digits[:, 1])
        alone = alone.view(-1, 1, 1, 1)
        pixels = torch.where(alone, parts[:, 0], self._overlaid(parts))
        parts[:, 1] = torch.where(alone, parts[:, 0], parts[:, 1])
        return Batch(pixels, self.base.labels[digits], parts)


@file_set("diverse-multi-mnist", OF_MNIST, ((1, 36, 36), 10, 60_000))
def _by_name(root: Root, split: Split) -> DiverseMultiMnist:
    return DiverseMultiMnist(mnist(root, split))
