"""Two images of a base on one frame: MultiMNIST and DiverseMultiMNIST.

MultiMNIST is that of [gu2021] §3.2, after [sabour2017] §6: two digits of different classes,
overlaid. A network has it right when its two highest scores are the two classes.
DiverseMultiMNIST of [tsai2020] App. B.2 shows one digit or two, always new ones. A network has it
right when the set of digits that it names is that of the labels; it is not told how many there are.

Departures:
1. DiverseMultiMNIST has as many images an epoch as the base has digits. Of all training digits of
   MNIST that is 60,000, as in the paper; digits held out for validation are missed in training.
Ambiguities:
1. How digits are overlaid: added and cut at white. overlay="max" is the other reading.
2. Whether partners of a digit may repeat in MultiMNIST: they are drawn evenly from all other
   classes, each time anew, and so may they.
"""

from abc import ABC
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, get_args

import torch
from torch import Tensor

from torchcaps._checks import check_choice, check_count
from torchcaps.data.batch import Batch, JudgedBy
from torchcaps.data.draws import integers
from torchcaps.data.make.derived_images import DerivedImages
from torchcaps.data.read.idx import OF_MNIST, mnist
from torchcaps.data.registry import Root, Split, file_set
from torchcaps.data.warp import place
from torchcaps.errors import TorchcapsError

Overlay = Literal["clip", "max"]

# Each purpose draws from its own stream.
PARTNER, CORNERS, FIRST, ALONE = range(4)


@dataclass(frozen=True, kw_only=True)
class Pairs(DerivedImages, ABC):
    """Two images of a base, each shifted by whole pixels, on one larger frame.

    shift: each is shifted by up to so many pixels along each axis, all shifts alike; the frame is
        as much larger on every side.
    overlay: "clip" adds them and cuts at 1, "max" takes the brighter pixel.
    """

    shift: int = 4
    overlay: Overlay = "clip"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("shift", self.shift, of="pixels", least=0)
        check_choice("overlay", self.overlay, get_args(Overlay))
        if bool((self.base.labels == self.base.labels[0]).all()):
            raise TorchcapsError(
                f"{self.base.name} has images of one class only, so no image finds a partner of "
                f"another; take more of its images."
            )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.base.image_shape
        return channels, height + 2 * self.shift, width + 2 * self.shift

    @cached_property
    def _by_class(self) -> tuple[Tensor, Tensor, Tensor]:
        """The base's images class by class, where each class starts, and how many it has."""
        order = self.base.labels.argsort(stable=True)
        count = torch.bincount(self.base.labels, minlength=len(self.class_names))
        return order, count.cumsum(0) - count, count

    def _partner(self, first: Tensor, sample: Tensor) -> Tensor:
        """Draw an image of another class than `first` for each, all of them alike, [b]."""
        order, start, count = self._by_class
        label = self.base.labels[first]
        others = (len(order) - count[label])[:, None]
        rank = integers(self.seed, sample, PARTNER, 1, others)[:, 0]
        # Its own class is skipped.
        return order[torch.where(rank >= start[label], rank + count[label], rank)]

    def _alone(self, digits: Tensor, sample: Tensor) -> Tensor:
        """Put images `digits` [b, m] of the base on a frame each, shifted, [b, m, ...]."""
        count = digits.shape[1]
        corner = integers(self.seed, sample, CORNERS, 2 * count, 2 * self.shift + 1)
        pixels = self.base.pixels(digits.flatten())
        placed = place(pixels, corner.view(-1, 2), self.image_shape[1:])
        return placed.view(*digits.shape, *self.image_shape)

    def _overlaid(self, parts: Tensor) -> Tensor:
        """Lay the parts [b, m, c, h, w] on one frame."""
        return parts.sum(1).clamp_(max=1) if self.overlay == "clip" else parts.amax(1)


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


def _multi(root: Root, split: Split, *, copies: int) -> MultiMnist:
    """Give every training digit so many partners [gu2021], and every test digit one."""
    return MultiMnist(mnist(root, split), copies=copies if split == "train" else 1)


for _name, _copies in (
    ("multi-mnist", 1),
    ("multi-mnist-10", 10),
    ("multi-mnist-100", 100),
    ("multi-mnist-1000", 1000),
):
    file_set(_name, OF_MNIST, ((1, 36, 36), 10, 60_000 * _copies))(partial(_multi, copies=_copies))


@file_set("diverse-multi-mnist", OF_MNIST, ((1, 36, 36), 10, 60_000))
def _diverse(root: Root, split: Split) -> DiverseMultiMnist:
    return DiverseMultiMnist(mnist(root, split))
