"""smallNORB by viewpoint, [renzulli2025] §4.1 after [hinton2018]: seen from some directions in
training, asked about from others.

azimuth    learned from 300 to 340 and 0 to 40 degrees, asked about the other 12 azimuths
elevation  learned from 30, 35 and 40 degrees, asked about the other 6 elevations

Familiar test images show the test toys from the directions of training.
"""

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Literal, get_args

import torch

from torchcaps._checks import check_choice
from torchcaps.data.image_set import ImageSet
from torchcaps.data.read.norb import smallnorb
from torchcaps.data.registry import Root, Split, file_set
from torchcaps.errors import TorchcapsError

Angle = Literal["azimuth", "elevation"]
Kind = Literal["familiar", "novel"]

_FAMILIAR = {"azimuth": (0, 20, 40, 300, 320, 340), "elevation": (30, 35, 40)}


def viewpoints(images: ImageSet, angle: Angle, kind: Kind) -> ImageSet:
    """Choose the images seen from familiar or from novel directions.

    Arguments:
        images: of smallNORB, or any whose `facts` hold the angle in degrees.
        angle: "azimuth" or "elevation".
        kind: which directions: the "familiar" ones, to train on, or the "novel" ones.

    >>> viewpoints(smallnorb("data", "test"), "azimuth", "novel")  # doctest: +SKIP
    """
    check_choice("angle", angle, get_args(Angle))
    check_choice("kind", kind, get_args(Kind))
    if angle not in images.facts:
        raise TorchcapsError(
            f"a split by viewpoints needs the {angle} of every image, but the facts of "
            f"{images.name} do not hold it; take smallnorb, which reads it from its -info.mat "
            f"files."
        )
    seen = torch.isin(images.facts[angle], torch.tensor(_FAMILIAR[angle]))
    index = (seen if kind == "familiar" else ~seen).nonzero()[:, 0]
    if not len(index):
        raise TorchcapsError(f"{images.name} has no image of a {kind} {angle}.")
    return replace(images.take(index), name=f"{images.name}-{angle}")


def _by_name(root: Root, split: Split, *, angle: Angle, tested: Kind) -> ImageSet:
    """Take familiar viewpoints for training, and those of one kind for the test."""
    return viewpoints(smallnorb(root, split), angle, "familiar" if split == "train" else tested)


for _angle, _tested in product(get_args(Angle), get_args(Kind)):
    file_set(
        f"smallnorb-{_angle}{'-familiar' * (_tested == 'familiar')}",
        "the -dat.mat, -cat.mat and -info.mat files of smallNORB",
        ((2, 96, 96), 5, 8_100),
    )(partial(_by_name, angle=_angle, tested=_tested))
