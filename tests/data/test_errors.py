"""What readers, makers and sets of images say of what they cannot take, in errors.txt, word by
word."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset

import laid_images
import laid_norb
from error_text import cases_of, said_by, settled
from laid_pictures import GREY as GREY_PNG
from laid_pictures import animals, patients
from torchcaps import data
from torchcaps.data import ImageSet, image_folder, parting, warp
from torchcaps.data.groups import groups_of_files
from torchcaps.data.make import affnist_style, viewpoints

ERRORS = Path(__file__).with_name("errors.txt")
NAN = float("nan")
BYTES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
GREY = torch.arange(12, dtype=torch.uint8).reshape(3, 4)
# Images that fit, and labels that fit them.
FINE, ANSWERS = torch.zeros(2, 1, 2, 2), torch.zeros(2).long()
DIRECTIONS = {"azimuth": torch.tensor([0, 60]), "elevation": torch.tensor([30, 30])}


def arrays(images, labels, *names):
    return data.from_arrays(images, labels, *names, name="mine")


def mine(images=FINE, labels=None, class_names=("cat", "dog"), **more):
    labels = torch.zeros(len(images), dtype=torch.int64) if labels is None else labels
    return ImageSet("mine", images, labels, class_names, **more)


def with_pixel(value):
    """Five images, of which image 3 has one other pixel."""
    images = torch.zeros(5, 1, 3, 3)
    images[3, 0, 1, 2] = value
    return images


def grouped(groups, labels):
    return mine(torch.zeros(len(labels), 1, 2, 2), torch.tensor(labels), groups=groups)


def seen_from_two_sides(**more):
    return ImageSet("smallnorb", FINE, ANSWERS, ("a",), **more)


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield GREY, 0


def skin(split="train", **options):
    """A folder of pictures, and an empty table of them."""
    root = patients(Path("skin"))
    (root / "patients.csv").write_text("file,patient\n")
    return image_folder(root, split, **options)


def table(text):
    """The groups that a table says of three pictures in two folders."""
    Path("patients.csv").write_bytes(text)
    files = ["a/1.png", "b/1.png", "b/2.png"]
    return groups_of_files(Path(), files, "patients.csv:who")


def parted(tested, split):
    """Folders of which one shows patients of the other."""
    patients(Path("skin/train"), 6)
    patients(Path("skin", tested), 4)
    return image_folder(Path("skin"), split, groups="(p[0-9]+)_")


def pets(*folders, split, last=("cat", "dog")):
    """Cats and dogs in each of these folders, other classes in the last one."""
    for name in folders:
        animals(Path("pets", name), names=last if name == folders[-1] else ("cat", "dog"))
    return image_folder(Path("pets"), split)


def heap(split):
    """Pictures that are to be judged elsewhere lie in one heap."""
    animals(Path("pets/train"))
    Path("pets/test").mkdir()
    Path("pets/test/1.png").write_bytes(GREY_PNG)
    return image_folder(Path("pets"), split)


def saved(groups, **columns):
    """A file of images and these columns."""
    np.savez("a.npz", images=BYTES, labels=[0, 1], **columns)
    return data.from_npz(Path("a.npz"), groups=groups)


def without_one(kind):
    """smallNORB without one of its files."""
    (laid_norb.folder(Path()) / f"{laid_norb.TRAIN}-{kind}.mat").unlink()
    return data.smallnorb(Path(), "train")


NAMES = vars(data) | vars(laid_images) | vars(affnist_style) | globals()
NAMES |= vars(viewpoints) | vars(parting) | vars(warp) | {"Image": Image}


def said(call):
    return settled(said_by(call, NAMES))


@pytest.mark.parametrize(("call", "sentence"), cases_of(ERRORS))
def test_what_is_told(call, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said(call) == sentence
