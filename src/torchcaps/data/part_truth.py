"""What is where in the images of the part-whole set: parts and their poses."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

PART_NAMES = ("disk", "ring", "bar", "cross", "triangle", "square", "ell", "tee")


@dataclass(frozen=True)
class PartTruth:
    """What is where in each image: the parts of the whole first, then the stray ones.

    A later slot lies behind an earlier one; the occluder lies before all. Places and sizes are in
    pixels of the images as they were made, `size` wide; None where they were stretched since.
    """

    part: Tensor  # int64 [n, p], index into part_names, -1 in an empty slot
    pose: Tensor  # float32 [n, p, 4]: x, y, rotation, size; 0 in an empty slot
    owner: Tensor  # int64 [n, p]: 0 belongs to the whole, -1 is stray or empty
    whole_pose: Tensor  # float32 [n, 4]
    occluder: Tensor  # float32 [n, 3]: x, y, radius; radius 0 where there is none
    size: int | None
    part_names: tuple[str, ...] = PART_NAMES

    def __getitem__(self, index: Tensor) -> "PartTruth":
        """Return the truth of some of the images."""
        whole: dict[str, Any] = {k: x for k, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, **{k: x[index] for k, x in whole.items()})


def shown_parts(truth: PartTruth) -> Tensor:
    """Say how each image shows each part, int64 [n, parts]: 0 not at all, 1 as a stray, 2 as one of
    its whole, however small a piece of it is seen.

    Arguments:
        truth: of a set that `part_whole` made.

    >>> shown_parts(truth).shape
    """
    kind = torch.where(truth.owner == 0, 2, 1).where(truth.part >= 0, 0)
    shown = torch.zeros(len(kind), len(truth.part_names), dtype=torch.int64)
    return shown.scatter_reduce(1, truth.part.clamp(min=0), kind, "amax")
