"""Readers and makers of labelled images."""

from torchcaps.data.batch import Batch, Images, JudgedBy
from torchcaps.data.by_name import load
from torchcaps.data.check import check_images
from torchcaps.data.folds import folds
from torchcaps.data.image_set import ImageSet
from torchcaps.data.make.affnist_style import AffineRanges, AffnistStyle
from torchcaps.data.make.expanded import Expanded
from torchcaps.data.make.multi_mnist import DiverseMultiMnist, MultiMnist
from torchcaps.data.make.part_shapes import OBJECTS, CanonicalPart, part_masks
from torchcaps.data.make.part_whole import PartWholeSpec, part_whole
from torchcaps.data.make.sign import SignSet, sign_set
from torchcaps.data.make.toy import toy_2d
from torchcaps.data.make.viewpoints import viewpoints
from torchcaps.data.part_truth import PartTruth, shown_parts
from torchcaps.data.read.arrays import from_arrays, from_npz
from torchcaps.data.read.cifar import cifar10, cifar100
from torchcaps.data.read.dataset import from_dataset
from torchcaps.data.read.dogs_vs_cats import dogs_vs_cats
from torchcaps.data.read.fetch import fetch_data
from torchcaps.data.read.folder import image_folder
from torchcaps.data.read.idx import fashion_mnist, mnist, read_idx
from torchcaps.data.read.imagenette import imagenette
from torchcaps.data.read.mat import affnist, svhn
from torchcaps.data.read.norb import smallnorb
from torchcaps.data.read.tiny_imagenet import tiny_imagenet
from torchcaps.data.registry import PUBLISHED, SOURCES
from torchcaps.data.sample import sample_of
from torchcaps.data.shown.augment import AUGMENTATIONS, augmented
from torchcaps.data.shown.channels import channel_statistics
from torchcaps.data.shown.crop import Cropped
from torchcaps.data.shown.resize import resized
from torchcaps.data.some import some_of

__all__ = [
    "AUGMENTATIONS",
    "OBJECTS",
    "PUBLISHED",
    "SOURCES",
    "AffineRanges",
    "AffnistStyle",
    "Batch",
    "CanonicalPart",
    "Cropped",
    "DiverseMultiMnist",
    "Expanded",
    "ImageSet",
    "Images",
    "JudgedBy",
    "MultiMnist",
    "PartTruth",
    "PartWholeSpec",
    "SignSet",
    "affnist",
    "augmented",
    "channel_statistics",
    "check_images",
    "cifar10",
    "cifar100",
    "dogs_vs_cats",
    "fashion_mnist",
    "fetch_data",
    "folds",
    "from_arrays",
    "from_dataset",
    "from_npz",
    "image_folder",
    "imagenette",
    "load",
    "mnist",
    "part_masks",
    "part_whole",
    "read_idx",
    "resized",
    "sample_of",
    "shown_parts",
    "sign_set",
    "smallnorb",
    "some_of",
    "svhn",
    "tiny_imagenet",
    "toy_2d",
    "viewpoints",
]
