"""Any data set of (image, label) becomes a set of images, or says in a sentence why not."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset, Subset, TensorDataset

from error_text import text_of
from torchcaps.data import from_dataset

GREY = torch.arange(12, dtype=torch.uint8).reshape(3, 4)


class Pets:
    """A length and items are all that is asked for."""

    def __init__(self, *items, classes=None) -> None:
        self.items = items
        if classes:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: int):
        return self.items[at]


@pytest.mark.parametrize(
    ("image", "shape"),
    [
        (GREY, (1, 3, 4)),
        (GREY.numpy(), (1, 3, 4)),
        (GREY[None].expand(3, 3, 4), (3, 3, 4)),
        (np.zeros((5, 7, 3), np.uint8), (3, 5, 7)),
        (torch.rand(2, 5, 7), (2, 5, 7)),
        (Image.new("L", (4, 3)), (1, 3, 4)),
        (Image.new("RGB", (4, 3)), (3, 3, 4)),
        (Image.new("P", (4, 3)), (3, 3, 4)),
        (Image.new("RGBA", (4, 3)), (3, 3, 4)),
    ],
    ids=["tensor", "array", "channels", "last", "floats", "L", "RGB", "P", "RGBA"],
)
def test_images_of_every_kind_are_held(image, shape) -> None:
    assert from_dataset(Pets((image, 0), (image, 1))).image_shape == shape


@pytest.mark.parametrize("label", [1, np.int64(1), np.uint8(1), torch.tensor(1)])
def test_labels_of_every_kind_are_held(label) -> None:
    found = from_dataset(Pets((GREY, 0), (GREY, label)))
    assert found.labels.tolist() == [0, 1]


def test_torchs_own_data_sets_are_held() -> None:
    images = torch.rand(6, 3, 5, 4)
    found = from_dataset(
        Subset(TensorDataset(images, torch.arange(6) % 3), [5, 1]), ("a", "b", "c")
    )
    assert torch.equal(found.images, images[[5, 1]])
    assert found.labels.tolist() == [2, 1]
    assert found.name == "Subset"


def test_names_of_classes_are_the_data_sets_own() -> None:
    found = from_dataset(Pets((GREY, 0), classes=["cat", "dog"]), name="pets")
    assert (found.name, found.class_names) == ("pets", ("cat", "dog"))
    assert from_dataset(Pets((GREY, 0), (GREY, 2))).class_names == ("0", "1", "2")


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield GREY, 0


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Endless(), "Endless has no length, so its images cannot be held in memory; give a data"),
        (Pets(), "Pets is empty; it needs at least one (image, label)."),
        (Pets(GREY), "item 0 must be a pair (image, label), but is a Tensor; wrap the data set"),
        (Pets((GREY, 0, 1)), "item 0 must be a pair (image, label), but is a tuple;"),
        (Pets((GREY, 0), {"image": GREY}), "item 1 must be a pair (image, label), but is a dict;"),
        (Pets((GREY, "cat")), "label 0 must be one whole number, but is a str; give the number of"),
        (Pets((GREY, 1.0)), "label 0 must be one whole number, but is a float;"),
        (Pets((GREY, 0), (GREY, torch.tensor([0, 1]))), "label 1 must be one whole number, but is"),
        (Pets(("a.png", 0)), "images must be numbers, but came as <U5; convert them first."),
        (Pets((None, 0)), "images must be numbers, but came as object;"),
        (
            Pets((GREY, 0), (GREY[:2], 1)),
            "all images must be alike, but image 0 is torch.uint8 [3, 4] and image 1 is "
            "torch.uint8 [2, 4]; bring them to one size and type first.",
        ),
        (Pets((GREY, 0), (GREY / 12, 1)), "and image 1 is torch.float32 [3, 4];"),
        (
            Pets((Image.new("L", (4, 3)), 0), (Image.new("RGB", (4, 3)), 1)),
            "image 0 is torch.uint8 [1, 3, 4] and image 1 is torch.uint8 [3, 3, 4];",
        ),
        (Pets((Image.new("F", (4, 3)), 0)), "the picture has pixels of mode F, which does not say"),
        (
            Pets((GREY, 0), (GREY, -1)),
            "must count two or more classes from 0, but the largest is 0",
        ),
        (Pets((GREY, -1), (GREY, 1)), "labels must be 0 to 1 for 2 classes, but image 0 has label"),
        (Pets((GREY, 2), classes=["cat", "dog"]), "but image 0 has label 2;"),
        (Pets((GREY, 0), (GREY, 0)), "labels must count two or more classes from 0"),
        (Pets((GREY * float("nan"), 1)), "pixels must be finite and in [0, 1], but image 0 goes"),
        (Pets((GREY - 6.0, 1)), "but image 0 goes from -6 to 5; divide bytes by 255"),
        (
            Pets((GREY.flatten(), 1)),
            "images must be [n, channels, height, width] with at least one",
        ),
    ],
)
def test_a_bad_data_set_is_told(dataset, words: str) -> None:
    assert words in text_of(lambda: from_dataset(dataset))


def test_more_than_memory_holds_is_refused_after_one_image() -> None:
    asked = []

    class Huge:
        def __len__(self) -> int:
            return 10**9

        def __getitem__(self, at: int):
            asked.append(at)
            return torch.zeros(3, 224, 224), 0

    assert text_of(lambda: from_dataset(Huge())) == (
        "Huge would fill 560760 GiB of memory with 1000000000 images of shape [3, 224, 224]; make "
        "them smaller first."
    )
    assert asked == [0]


def test_items_may_have_groups() -> None:
    found = from_dataset(Pets((GREY, 0), (GREY, 1)), groups=("ann", "bob"))
    assert found.groups == ("ann", "bob")
