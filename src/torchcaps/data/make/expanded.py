"""Expanded MNIST of [gu2021] §3.1 and [renzulli2025] §4.1: a digit anywhere on a black 40 × 40.

Ambiguities:
1. Whether digits are placed once or anew in every epoch: anew; once with fresh=False.
2. Where digits of the test set lie: the papers name an expanded test set, but the 6 pixels of
   padding that [gu2021] gives are those of affNIST. Centred, which is the same padding, when it
   comes by name; placement="random" is the other reading.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from torchcaps._checks import check_choice, check_count
from torchcaps.data.batch import Batch
from torchcaps.data.draws import integers
from torchcaps.data.make.derived_images import DerivedImages
from torchcaps.data.read.idx import OF_MNIST, mnist
from torchcaps.data.registry import Root, Split, file_set
from torchcaps.data.warp import place
from torchcaps.errors import TorchcapsError

Placement = Literal["random", "centred"]


@dataclass(frozen=True, kw_only=True)
class Expanded(DerivedImages):
    """Images on a larger black frame, moved by whole pixels and not otherwise changed.

    placement: anywhere inside the frame, all places alike; or in its centre.
    side: height and width of the frame.
    """

    placement: Placement = "random"
    side: int = 40

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("placement", self.placement, get_args(Placement))
        check_count("side", self.side, of="pixels")
        _, height, width = self.base.image_shape
        if self.side < max(height, width):
            raise TorchcapsError(
                f"side={self.side} is too small for the images of {self.base.name}, which are "
                f"{height} × {width}; a frame must hold a whole image."
            )

    @property
    def name(self) -> str:
        return f"expanded-{self.base.name}"

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.base.image_shape[0], self.side, self.side

    def _make(self, source: Tensor, sample: Tensor) -> Batch:
        _, height, width = self.base.image_shape
        free = torch.tensor([self.side - width, self.side - height], device=sample.device)
        if self.placement == "random":
            corner = integers(self.seed, sample, 0, 2, free + 1)
        else:
            corner = (free // 2).expand(len(sample), 2)
        pixels = place(self.base.pixels(source), corner, (self.side, self.side))
        return Batch(pixels, self.base.labels[source])


@file_set("expanded-mnist", OF_MNIST, ((1, 40, 40), 10, 60_000))
def _by_name(root: Root, split: Split) -> Expanded:
    return Expanded(mnist(root, split), placement="random" if split == "train" else "centred")
