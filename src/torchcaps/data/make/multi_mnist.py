"""MultiMNIST of [gu2021] §3.2, after [sabour2017] §6: two digits of different classes, overlaid.

A network has it right when its two highest scores are the two classes.

Ambiguities:
1. How digits are overlaid: added and cut at white. overlay="max" is the other reading.
2. Whether partners of a digit may repeat: they are drawn evenly from all other classes, each time
   anew, and so may they.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from torchcaps.data.batch import Batch, JudgedBy
from torchcaps.data.make.pairs import Pairs
from torchcaps.data.read.idx import OF_MNIST, mnist
from torchcaps.data.registry import Root, Split, file_set


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


def _by_name(root: Root, split: Split, *, copies: int) -> MultiMnist:
    """Every training digit with so many partners [gu2021]; of the test, one a digit."""
    return MultiMnist(mnist(root, split), copies=copies if split == "train" else 1)


for _name, _copies in (
    ("multi-mnist", 1),
    ("multi-mnist-10", 10),
    ("multi-mnist-100", 100),
    ("multi-mnist-1000", 1000),
):
    file_set(_name, OF_MNIST, ((1, 36, 36), 10, 60_000 * _copies))(
        partial(_by_name, copies=_copies)
    )
