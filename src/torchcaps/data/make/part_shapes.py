"""The eight shapes that parts are made of, as signed distances, and the wholes made of them.

Every shape fits the unit circle of its own frame (x right, y down) and is placed by a pose
(x, y, rotation, size): pixel (column, row) has its centre at (column, row), rotations are clockwise
on the screen, and the size is the radius of the unit circle in pixels. Distances are in pixels,
negative inside.

Only additions, products, square roots, minima and maxima are used: they are rounded correctly, so a
picture is the same bit for bit whatever the batch it is drawn in.
"""

import math
from collections.abc import Mapping
from functools import reduce
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.data.part_truth import PART_NAMES, PartTruth
from torchcaps.data.warp import cos_sin
from torchcaps.errors import TorchcapsError

# The size of every part, as a share of its whole.
PART_SIZE = 0.42

# Every part carries a dark rim of this many pixels, so that overlapping parts stay apart.
RIM = 0.8

# Shapes that are made of boxes: the centre of each, and half its width and height.
_BOXES = {
    "bar": [((0.0, 0.0), (0.95, 0.28))],
    "cross": [((0.0, 0.0), (0.92, 0.26)), ((0.0, 0.0), (0.26, 0.92))],
    "square": [((0.0, 0.0), (0.68, 0.68))],
    "ell": [((-0.42, 0.0), (0.26, 0.72)), ((0.0, 0.46), (0.68, 0.26))],
    "tee": [((0.0, -0.42), (0.72, 0.26)), ((0.0, 0.12), (0.26, 0.8))],
}

# How far an empty slot is from every pixel.
_FAR = 1e4


class CanonicalPart(NamedTuple):
    """A part in the frame of its whole: the whole's centre is (0, 0) and its size 1."""

    part: str
    x: float
    y: float
    rotation: float = 0.0
    size: float = PART_SIZE


def _whole(*places: tuple[str, str]) -> tuple[CanonicalPart, ...]:
    reach = 0.56
    compass = {"n": (0.0, -reach), "e": (reach, 0.0), "s": (0.0, reach), "w": (-reach, 0.0)}
    return tuple(CanonicalPart(part, *compass[place]) for part, place in places)


# The true tree: each class and its parts. The first `PartWholeSpec.parts` of a row are drawn.
OBJECTS: Mapping[str, tuple[CanonicalPart, ...]] = MappingProxyType(
    {
        "aquila": _whole(("disk", "n"), ("bar", "w"), ("bar", "e"), ("triangle", "s")),
        "cygnus": _whole(("disk", "s"), ("bar", "w"), ("bar", "e"), ("triangle", "n")),
        "draco": _whole(("triangle", "n"), ("square", "s"), ("ring", "e"), ("cross", "w")),
        "hydra": _whole(("square", "n"), ("triangle", "s"), ("ring", "e"), ("cross", "w")),
        "leo": _whole(("ring", "w"), ("cross", "n"), ("tee", "e"), ("disk", "s")),
        "lyra": _whole(("tee", "w"), ("cross", "n"), ("ring", "e"), ("disk", "s")),
        "orion": _whole(("ell", "n"), ("square", "w"), ("disk", "e"), ("bar", "s")),
        "pavo": _whole(("ell", "s"), ("square", "w"), ("disk", "e"), ("bar", "n")),
        "vela": _whole(("tee", "n"), ("triangle", "w"), ("cross", "e"), ("ell", "s")),
        "volans": _whole(("triangle", "n"), ("tee", "w"), ("cross", "e"), ("ell", "s")),
    }
)


def _box(x: Tensor, y: Tensor, centre: tuple[float, float], half: tuple[float, float]) -> Tensor:
    """Return the larger distance to the two pairs of sides: corners stay sharp at any offset."""
    return torch.maximum((x - centre[0]).abs_() - half[0], (y - centre[1]).abs_() - half[1])


def _radius(x: Tensor, y: Tensor) -> Tensor:
    return (x * x + y * y).sqrt_()


def _shape(name: str, x: Tensor, y: Tensor) -> Tensor:
    """Measure the distance in the shape's own frame, where its unit circle has radius one."""
    match name:
        case "disk":
            return _radius(x, y) - 0.85
        case "ring":
            return (_radius(x, y) - 0.7).abs_() - 0.2
        case "triangle":
            # Apex up; the three sides lie 0.5 from the centre, the corners 1.
            slanted = x.abs() * (math.sqrt(3) / 2) - y * 0.5
            return torch.maximum(slanted, y) - 0.5
    return reduce(torch.minimum, [_box(x, y, centre, half) for centre, half in _BOXES[name]])


def part_distance(part: Tensor, pose: Tensor, size: int) -> Tensor:
    """Measure from each pixel to each part, float32 [n, p, size, size]; far for an empty slot.

    part: [n, p], index into PART_NAMES or -1. pose: [n, p, 4].
    """
    grid = torch.arange(size, device=pose.device, dtype=torch.float32)
    distance = torch.full((*part.shape, size, size), _FAR, device=pose.device)
    for index, name in enumerate(PART_NAMES):
        where = (part == index).nonzero(as_tuple=True)
        centre_x, centre_y, rotation, radius = pose[where].unbind(-1)
        cos, sin = (value.to(torch.float32) / radius for value in cos_sin(rotation))
        # [m, 1, size] and [m, size, 1]: a turn is linear, so their sums below are whole planes.
        dx = (grid - centre_x[:, None])[:, None, :]
        dy = (grid - centre_y[:, None])[:, :, None]
        cos, sin = cos[:, None, None], sin[:, None, None]
        local = _shape(name, dx * cos + dy * sin, dy * cos - dx * sin)
        distance[where] = local.mul_(radius[:, None, None])
    return distance


def disk_distance(centre: Tensor, radius: Tensor, size: int) -> Tensor:
    """Measure from each pixel to a disk per sample, [n, size, size]; far where the radius is 0."""
    grid = torch.arange(size, device=centre.device, dtype=torch.float32)
    dx = (grid - centre[:, :1])[:, None, :]
    dy = (grid - centre[:, 1:])[:, :, None]
    distance = _radius(dx, dy) - radius[:, None, None]
    return distance.masked_fill_((radius == 0)[:, None, None], _FAR)


def part_masks(truth: PartTruth, indices: Tensor) -> Tensor:
    """Find the visible pixels of each part, bool [m, p, h, w], drawn anew from the poses.

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
