"""Readers and makers of labelled images."""

from torchcaps.data.idx import mnist, read_idx
from torchcaps.data.image_set import ImageSet
from torchcaps.data.part_truth import PartTruth, part_masks
from torchcaps.data.part_whole import OBJECTS, CanonicalPart, PartWholeSpec, part_whole
from torchcaps.data.sources import SOURCES, hold_out, load, take

__all__ = [
    "OBJECTS",
    "SOURCES",
    "CanonicalPart",
    "ImageSet",
    "PartTruth",
    "PartWholeSpec",
    "hold_out",
    "load",
    "mnist",
    "part_masks",
    "part_whole",
    "read_idx",
    "take",
]
