"""Points of the plane in three classes, [gu2021] Fig. 5: so small that a picture shows all of what
a decoder draws.

Departures:
1. Coordinates lie in [0, 1], as pixels do, and are the two channels of an image of one pixel, so
   that networks with 1 × 1 kernels take them.
Ambiguities:
1. The paper says no more than "a 2D input space and 3 output classes". Three clouds, here, around
   the corners of an equilateral triangle in the middle of the square, which hardly overlap.
"""

import math
from typing import Literal

import torch

from torchcaps._checks import check_count
from torchcaps.data.draws import normal
from torchcaps.data.image_set import ImageSet
from torchcaps.data.registry import made_set

N_CLASSES = 3
# How far the centres lie from the middle of the square; with the deviation of a cloud's points, of
# which none lies farther off than 3.47 deviations, the whole cloud lies in the square.
RADIUS, DEVIATION = 0.25, 0.07
# Training and test points are drawn by streams of their own.
STREAMS = {"train": 0, "test": 1}


def toy_2d(split: Literal["train", "test"], n: int = 10_000, *, seed: int = 0) -> ImageSet:
    """Draw `n` points as images [2, 1, 1], the classes in turn.

    Arguments:
        split: "train" or "test".
        n: how many points.
        seed: which points are drawn.

    >>> toy_2d("test", 6).labels
    tensor([0, 1, 2, 0, 1, 2])
    """
    check_count("n", n, of="points", least=N_CLASSES, so="each class needs one")
    number = torch.arange(n)
    labels = number % N_CLASSES
    angle = torch.tensor([math.tau * k / N_CLASSES for k in range(N_CLASSES)])[labels]
    centre = 0.5 + RADIUS * torch.stack([angle.cos(), angle.sin()], 1)
    points = centre + DEVIATION * normal(seed, number, STREAMS[split], 2)
    names = tuple(map(str, range(N_CLASSES)))
    return ImageSet("toy-2d", points.view(n, 2, 1, 1), labels, names)


@made_set("toy-2d", ((2, 1, 1), N_CLASSES, 10_000))
def _by_name(split: Literal["train", "test"]) -> ImageSet:
    return toy_2d(split, 10_000 if split == "train" else 2_000)
