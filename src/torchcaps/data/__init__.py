"""Readers and makers of labelled images."""

from torchcaps.data.arrays import from_arrays, from_npz
from torchcaps.data.cifar import cifar10, cifar100
from torchcaps.data.dataset import from_dataset
from torchcaps.data.folder import image_folder
from torchcaps.data.idx import fashion_mnist, mnist, read_idx
from torchcaps.data.image_set import ImageSet
from torchcaps.data.mat import affnist, svhn
from torchcaps.data.norb import smallnorb
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
    "affnist",
    "cifar10",
    "cifar100",
    "fashion_mnist",
    "from_arrays",
    "from_dataset",
    "from_npz",
    "hold_out",
    "image_folder",
    "load",
    "mnist",
    "part_masks",
    "part_whole",
    "read_idx",
    "smallnorb",
    "svhn",
    "take",
]
