"""The part-whole set, our own: objects composed of posed parts on clutter, with the whole truth.

Ten wholes, named after constellations, are arrangements of a few parts of one vocabulary
(`part_shapes`). No part decides the class: every part belongs to at least two wholes, and the
wholes come in pairs of the same parts arranged differently. A whole is shifted, turned and scaled;
its parts follow it with a small jitter of their own. Stray parts of the same vocabulary lie behind
it, now and then a grey disk hides a piece of one of its parts, and every pixel is noisy.

Everything is a pure function of (seed, split, sample index, spec): sample n is the same bit for bit
whatever the batch it is made in. Poses are (x, y, rotation, size) as in `part_shapes`; a part lies
where the pose of its whole carries its canonical pose.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from torchcaps._checks import check_choice, check_count, check_number
from torchcaps.data.draws import normal, uniform
from torchcaps.data.image_set import ImageSet
from torchcaps.data.make.part_shapes import (
    OBJECTS,
    PART_SIZE,
    RIM,
    disk_distance,
    part_distance,
)
from torchcaps.data.part_truth import PART_NAMES, PartTruth
from torchcaps.data.registry import made_set
from torchcaps.data.warp import cos_sin
from torchcaps.errors import TorchcapsError

PartSplit = Literal["train", "validation", "test"]

# Each purpose draws from its own stream, so turning one knob leaves the other draws as they were.
_LABEL, _POSE, _JITTER, _INK, _STRAY_COUNT, _STRAYS, _OCCLUDER, _NOISE = range(8)
_STREAMS = 8

# How many images there are, when it comes by name.
SIZES = {"train": 10_000, "test": 2_000}

_OWN_INK = (0.75, 1.0)
_STRAY_INK = (0.45, 0.9)
_OCCLUDER_INK = 0.25
# 128 images of 32 pixels: their distances stay in the cache.
_CHUNK_PIXELS = 2**17


@dataclass(frozen=True)
class PartWholeSpec:
    """The knobs of the part-whole set. At the defaults every whole lies inside the frame.

    size: height and width in pixels.
    n_classes: the first so many rows of `OBJECTS`.
    parts: parts of each whole, two to four; with only two, a ring already tells the class.
    clutter: fewest and most stray parts of an image.
    occlusion: share of the images in which a grey disk hides about half of one of its parts.
    rotation: a whole turns by up to this many radians either way.
    scale: smallest and largest size of a whole, as a share of half the image.
    shift: a whole moves by up to this share of the image along each axis.
    jitter: a part moves by up to this share of its whole along each axis, grows or shrinks by up to
        the same share of itself, and turns by up to twice as many radians.
    noise: standard deviation of the pixel noise, where white is 1.
    """

    size: int = 32
    n_classes: int = 10
    parts: int = 3
    clutter: tuple[int, int] = (1, 4)
    occlusion: float = 0.2
    rotation: float = 0.6
    scale: tuple[float, float] = (0.55, 0.7)
    shift: float = 0.1
    jitter: float = 0.08
    noise: float = 0.1

    def __post_init__(self) -> None:
        for knob, low, high in (("size", 16, 1024), ("n_classes", 2, 10), ("parts", 2, 4)):
            check_count(knob, getattr(self, knob), least=low, most=high)
        _ordered("clutter", self.clutter, 0, 32)
        if not all(isinstance(count, int) for count in self.clutter):
            raise TorchcapsError(f"clutter must be two whole numbers, got {self.clutter}.")
        _ordered("scale", self.scale, 0.1, 2)
        check_number("occlusion", self.occlusion, most=1, so="it is a share of the images")
        check_number("rotation", self.rotation, most=math.pi, so="it is radians either way")
        check_number("shift", self.shift, most=0.5, so="it is a share of the image's width")
        check_number("jitter", self.jitter, most=0.5, so="it is a share of the whole's size")
        check_number("noise", self.noise, most=1, so="white is 1")


def _ordered(knob: str, pair: tuple[float, float], low: float, high: float) -> None:
    if not (len(pair) == 2 and low <= pair[0] <= pair[1] <= high):
        raise TorchcapsError(
            f"{knob} must be a pair (least, most) from {low} to {high}, got {pair}."
        )


def part_whole(
    split: PartSplit,
    n: int,
    *,
    spec: PartWholeSpec | None = None,
    seed: int = 0,
    start: int = 0,
    device: torch.device | str = "cpu",
    chunk: int | None = None,
) -> ImageSet:
    """Draw samples `start` to `start + n` of a split, labels evenly; splits share no sample.

    Arguments:
        split: "train", "validation" or "test".
        n: how many samples.
        spec: sizes, numbers and ranges of what is drawn; None: the defaults of `PartWholeSpec`.
        seed: which samples are drawn.
        start: the number of the first sample.
        device: where they are drawn.
        chunk: samples drawn at once; by default so many that they fit a few megabytes. It changes
            nothing else.

    >>> part_whole("train", 5).images.shape
    torch.Size([5, 1, 32, 32])
    """
    spec = spec or PartWholeSpec()
    chunk = max(1, _CHUNK_PIXELS // spec.size**2) if chunk is None else chunk
    check_choice("split", split, get_args(PartSplit))
    for name, value, least in (("n", n, 1), ("start", start, 0), ("chunk", chunk, 1)):
        check_count(name, value, least=least)
    draws = _Draws(seed, get_args(PartSplit).index(split))
    pieces = [
        _scene(draws, torch.arange(first, min(first + chunk, start + n), device=device), spec)
        for first in range(start, start + n, chunk)
    ]
    images, label, *where = (torch.cat(column) for column in zip(*pieces, strict=True))
    part, pose, owner, whole, occluder = where
    names = tuple(OBJECTS)[: spec.n_classes]
    truth = PartTruth(part, pose, owner, whole, occluder, size=spec.size)
    return ImageSet("part-whole", images, label, names, truth)


class _Draws(NamedTuple):
    """The random numbers of one split, by purpose."""

    seed: int
    split: int

    def uniform(self, sample: Tensor, purpose: int, count: int) -> Tensor:
        return uniform(self.seed, sample, self.split * _STREAMS + purpose, count)

    def normal(self, sample: Tensor, purpose: int, count: int) -> Tensor:
        return normal(self.seed, sample, self.split * _STREAMS + purpose, count)


def _scene(draws: _Draws, sample: Tensor, spec: PartWholeSpec) -> tuple[Tensor, ...]:
    """Draw images, labels and the tensors of `PartTruth`, in its order, for these samples."""
    label = _pick(draws.uniform(sample, _LABEL, 1)[:, 0], 0, spec.n_classes - 1)
    whole_pose = _whole_pose(draws.uniform(sample, _POSE, 4), spec)
    own_part, own_pose = _own_parts(draws, sample, label, whole_pose, spec)
    stray_part, stray_pose = _stray_parts(draws, sample, spec)
    part = torch.cat([own_part, stray_part], 1)
    pose = torch.cat([own_pose, stray_pose], 1)
    owner = torch.cat([torch.zeros_like(own_part), torch.full_like(stray_part, -1)], 1)
    occluder = _occluder(draws.uniform(sample, _OCCLUDER, 3), own_pose, spec)

    u = draws.uniform(sample, _INK, 1 + stray_part.shape[1])
    own_ink = _spread(u[:, :1], *_OWN_INK).expand(-1, spec.parts)
    ink = torch.cat([own_ink, _spread(u[:, 1:], *_STRAY_INK)], 1)
    canvas = _paint(part_distance(part, pose, spec.size), ink)
    hidden = (0.5 - disk_distance(occluder[:, :2], occluder[:, 2], spec.size)).clamp_(0, 1)
    canvas = canvas * (1 - hidden) + hidden * _OCCLUDER_INK
    noise = draws.normal(sample, _NOISE, spec.size**2).view_as(canvas)
    canvas = (canvas + noise * spec.noise).clamp_(0, 1)
    images = (canvas * 255).round_().to(torch.uint8)[:, None]
    return images, label, part, pose, owner, whole_pose, occluder


def _spread(u: Tensor, low: float, high: float) -> Tensor:
    return low + u * (high - low)


def _pick(u: Tensor, low: int, high: int) -> Tensor:
    """Pick an integer from low to high, both included."""
    return low + (u * (high - low + 1)).to(torch.int64)


def _whole_pose(u: Tensor, spec: PartWholeSpec) -> Tensor:
    middle, reach = (spec.size - 1) / 2, spec.shift * spec.size
    x = _spread(u[:, 0], middle - reach, middle + reach)
    y = _spread(u[:, 1], middle - reach, middle + reach)
    rotation = _spread(u[:, 2], -spec.rotation, spec.rotation)
    return torch.stack([x, y, rotation, _spread(u[:, 3], *spec.scale) * (spec.size / 2)], -1)


def _own_parts(
    draws: _Draws, sample: Tensor, label: Tensor, whole_pose: Tensor, spec: PartWholeSpec
) -> tuple[Tensor, Tensor]:
    """Pose the parts of each whole: its pose after the jittered canonical poses."""
    rows = [row[: spec.parts] for row in OBJECTS.values()]
    device = label.device
    part = torch.tensor([[PART_NAMES.index(p.part) for p in row] for row in rows], device=device)
    canonical = torch.tensor([[p[1:] for p in row] for row in rows], device=device)
    u = draws.uniform(sample, _JITTER, 4 * spec.parts).view(len(sample), spec.parts, 4)
    x, y, rotation, size = canonical[label].unbind(-1)
    x = x + _spread(u[..., 0], -spec.jitter, spec.jitter)
    y = y + _spread(u[..., 1], -spec.jitter, spec.jitter)
    rotation = rotation + _spread(u[..., 2], -2 * spec.jitter, 2 * spec.jitter)
    size = size * _spread(u[..., 3], 1 - spec.jitter, 1 + spec.jitter)

    whole_x, whole_y, whole_rotation, whole_size = whole_pose[:, None].unbind(-1)
    cos, sin = (value.to(torch.float32) for value in cos_sin(whole_rotation))
    pose = [
        whole_x + whole_size * (x * cos - y * sin),
        whole_y + whole_size * (x * sin + y * cos),
        whole_rotation + rotation,
        whole_size * size,
    ]
    return part[label], torch.stack(pose, -1)


def _stray_parts(draws: _Draws, sample: Tensor, spec: PartWholeSpec) -> tuple[Tensor, Tensor]:
    """Draw parts of any shape, place and turn, as large as those of a whole."""
    most = spec.clutter[1]
    count = _pick(draws.uniform(sample, _STRAY_COUNT, 1), *spec.clutter)
    u = draws.uniform(sample, _STRAYS, 5 * most).view(len(sample), most, 5)
    part = _pick(u[..., 0], 0, len(PART_NAMES) - 1)
    size = _spread(u[..., 4], *spec.scale) * (spec.size / 2 * PART_SIZE)
    place = _spread(u[..., 1:3], 0.05 * spec.size, 0.95 * spec.size) - 0.5
    rotation = _spread(u[..., 3], -math.pi, math.pi)
    pose = torch.cat([place, rotation[..., None], size[..., None]], -1)
    empty = torch.arange(most, device=part.device) >= count
    return part.masked_fill(empty, -1), pose.masked_fill(empty[..., None], 0)


def _occluder(u: Tensor, own_pose: Tensor, spec: PartWholeSpec) -> Tensor:
    """Place a disk as large as one of the whole's parts, so that it hides half of its circle."""
    victim = own_pose[torch.arange(len(u), device=u.device), _pick(u[:, 1], 0, spec.parts - 1)]
    cos, sin = (value.to(torch.float32) for value in cos_sin(u[:, 2] * (2 * math.pi)))
    # Two unit circles 0.8 apart share half their area.
    reach = victim[:, 3] * 0.8
    disk = torch.stack([victim[:, 0] + reach * cos, victim[:, 1] + reach * sin, victim[:, 3]], -1)
    return disk.masked_fill(u[:, :1] >= spec.occlusion, 0)


def _paint(distance: Tensor, ink: Tensor) -> Tensor:
    """Paint the picture [n, h, w] without occluder and noise: slots from the last to the first."""
    canvas = torch.zeros_like(distance[:, 0])
    for slot in reversed(range(ink.shape[1])):
        edge = 0.5 - distance[:, slot]
        canvas *= 1 - (edge + RIM).clamp_(0, 1)
        canvas += edge.clamp_(0, 1) * ink[:, slot, None, None]
    return canvas


@made_set("part-whole", ((1, 32, 32), 10, SIZES["train"]))
def _by_name(split: Literal["train", "test"]) -> ImageSet:
    return part_whole(split, SIZES[split])
