"""Readers and makers of labelled images."""

from torchcaps.data.arrays import from_arrays, from_npz
from torchcaps.data.batch import Batch, Images
from torchcaps.data.cifar import cifar10, cifar100
from torchcaps.data.dataset import from_dataset
from torchcaps.data.folder import image_folder
from torchcaps.data.idx import fashion_mnist, mnist, read_idx
from torchcaps.data.image_set import ImageSet
from torchcaps.data.mat import affnist, svhn
from torchcaps.data.norb import smallnorb
from torchcaps.data.part_truth import PartTruth, part_masks
from torchcaps.data.part_whole import OBJECTS, CanonicalPart, PartWholeSpec, part_whole
from torchcaps.data.sources import SOURCES, load

__all__ = [
    "OBJECTS",
    "SOURCES",
    "Batch",
    "CanonicalPart",
    "ImageSet",
    "Images",
    "PartTruth",
    "PartWholeSpec",
    "affnist",
    "cifar10",
    "cifar100",
    "fashion_mnist",
    "from_arrays",
    "from_dataset",
    "from_npz",
    "image_folder",
    "load",
    "mnist",
    "part_masks",
    "part_whole",
    "read_idx",
    "smallnorb",
    "svhn",
]
