"""Readers and makers of labelled images."""

from torchcaps.data.affnist_style import AffineRanges, AffnistStyle
from torchcaps.data.arrays import from_arrays, from_npz
from torchcaps.data.augment import AUGMENTATIONS, augmented
from torchcaps.data.batch import Batch, Images, JudgedBy
from torchcaps.data.by_name import SOURCES, load
from torchcaps.data.channels import channel_statistics
from torchcaps.data.check import check_images
from torchcaps.data.cifar import cifar10, cifar100
from torchcaps.data.crop import Cropped
from torchcaps.data.dataset import from_dataset
from torchcaps.data.diverse_multi_mnist import DiverseMultiMnist
from torchcaps.data.dogs_vs_cats import dogs_vs_cats
from torchcaps.data.downloads import PUBLISHED
from torchcaps.data.expanded import Expanded
from torchcaps.data.fetch import fetch_data
from torchcaps.data.folder import image_folder
from torchcaps.data.folds import folds
from torchcaps.data.idx import fashion_mnist, mnist, read_idx
from torchcaps.data.image_set import ImageSet
from torchcaps.data.imagenette import imagenette
from torchcaps.data.mat import affnist, svhn
from torchcaps.data.multi_mnist import MultiMnist
from torchcaps.data.norb import smallnorb
from torchcaps.data.part_truth import PartTruth, part_masks, shown_parts
from torchcaps.data.part_whole import OBJECTS, CanonicalPart, PartWholeSpec, part_whole
from torchcaps.data.resize import resized
from torchcaps.data.sample import sample_of
from torchcaps.data.sign import SignSet, sign_set
from torchcaps.data.some import some_of
from torchcaps.data.tiny_imagenet import tiny_imagenet
from torchcaps.data.toy import toy_2d
from torchcaps.data.viewpoints import viewpoints

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
