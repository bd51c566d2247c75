"""What is where in the images of the part-whole set: parts, their poses, their masks."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchcaps.data.part_shapes import PART_NAMES, disk_distance, part_distance
from torchcaps.errors import TorchcapsError

__all__ = ["RIM", "PartTruth", "part_masks", "shown_parts"]

# Every part carries a dark rim of this many pixels, so that overlapping parts stay apart.
RIM = 0.8


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
        """The truth of some of the images."""
        return replace(
            self,
            part=self.part[index],
            pose=self.pose[index],
            owner=self.owner[index],
            whole_pose=self.whole_pose[index],
            occluder=self.occluder[index],
        )


def part_masks(truth: PartTruth, indices: Tensor) -> Tensor:
    """The visible pixels of each part, bool [m, p, h, w], drawn anew from the poses.

    A pixel is a part's own when the part covers at least half of it and nothing before the part
    (its rim included) does; so no pixel has two owners. An empty slot has no pixels.

    Arguments:
        truth: of a set that `part_whole` made, in the size in which it was made.
        indices: which images, int64 [m].

    >>> part_masks(part_whole("test", 4).truth, torch.arange(4)).shape  # doctest: +SKIP
    """
    if truth.size is None:
        raise TorchcapsError(
            "pixels of parts are known in the size in which images are made, but these were "
            "stretched since; take the set before it is resized."
        )
    distance = part_distance(truth.part[indices], truth.pose[indices], truth.size)
    occluder = truth.occluder[indices]
    hidden = disk_distance(occluder[:, :2], occluder[:, 2], truth.size) <= 0
    masks = distance <= 0
    for slot in range(masks.shape[1]):
        masks[:, slot] &= ~hidden
        hidden = hidden | (distance[:, slot] <= RIM)
    return masks


def shown_parts(truth: PartTruth) -> Tensor:
    """How each image shows each part, int64 [n, parts]: 0 not at all, 1 as a stray, 2 as one of its
    whole, however small a piece of it is seen.

    Arguments:
        truth: of a set that `part_whole` made.

    >>> shown_parts(truth).shape
    """
    kind = torch.where(truth.owner == 0, 2, 1).where(truth.part >= 0, 0)
    shown = torch.zeros(len(kind), len(truth.part_names), dtype=torch.int64)
    return shown.scatter_reduce(1, truth.part.clamp(min=0), kind, "amax")
