"""What readers, makers and sets of images say of what they cannot take, in errors.txt, word by
word."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset

import laid_images
from error_text import cases_of, said_by, settled
from laid_pictures import patients
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


NAMES = vars(data) | vars(laid_images) | vars(affnist_style) | globals()
NAMES |= vars(viewpoints) | vars(parting) | vars(warp) | {"Image": Image}


def said(call):
    return settled(said_by(call, NAMES))


@pytest.mark.parametrize(("call", "sentence"), cases_of(ERRORS))
def test_what_is_told(call, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said(call) == sentence
