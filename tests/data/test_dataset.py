"""Any data set of (image, label) becomes a set of images, or says in a sentence why not."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset, TensorDataset

from error_text import text_of
from laid_images import Pets
from torchcaps.data import from_dataset

GREY = torch.arange(12, dtype=torch.uint8).reshape(3, 4)


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
