"""MultiMNIST of [gu2021] §3.2, after [sabour2017] §6: two digits of different classes, overlaid.

A network has it right when its two highest scores are the two classes.

Ambiguities:
1. How digits are overlaid: added and cut at white. overlay="max" is the other reading.
2. Whether partners of a digit may repeat: they are drawn evenly from all other classes, each time
   anew, and so may they.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.data.batch import Batch, JudgedBy
from torchcaps.data.make.pairs import Pairs

__all__ = ["MultiMnist"]


@dataclass(frozen=True, kw_only=True)
class MultiMnist(Pairs):
    """Every image of the base with `copies` partners: 100 of 60,000 digits make 6 million images.

    The same in every epoch, because how many images there are is the question of [gu2021] Fig. 3.
    Labels are the classes of the digit and of its partner, [b, 2]; `parts` are both alone.
    """

    fresh: bool = False

    @property
    def name(self) -> str:
        return f"multi-{self.base.name}"

    @property
    def judged_by(self) -> JudgedBy:
        return "top"

    def _make(self, source: Tensor, sample: Tensor) -> Batch:
        digits = torch.stack([source, self._partner(source, sample)], 1)
        parts = self._alone(digits, sample)
        return Batch(self._overlaid(parts), self.base.labels[digits], parts)
