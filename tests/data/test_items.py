"""Sets of images as map-style data sets: a DataLoader gives what `batch` gives."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from error_text import text_of
from torchcaps.data import (
    Cropped,
    Expanded,
    ImageSet,
    MultiMnist,
    augmented,
    from_dataset,
    resized,
    sign_set,
    some_of,
)


def noise(count: int = 20) -> ImageSet:
    images = torch.randint(0, 256, (count, 1, 6, 5), dtype=torch.uint8)
    return ImageSet("noise", images, torch.arange(count) % 3, ("a", "b", "c"))


SETS = {
    "memory": noise,
    "expanded": lambda: Expanded(noise(), side=9),
    "two objects": lambda: MultiMnist(noise(), shift=2),
    "augmented": lambda: augmented(noise(), "shift2"),
    "cropped": lambda: Cropped(noise(), (3, 3), seed=2),
    "resized": lambda: resized(MultiMnist(noise()), (4, 4)),
    "numbers": lambda: sign_set(n=20),
    "some": lambda: some_of(noise(50), 20),
}


@pytest.mark.parametrize("name", sorted(SETS))
def test_an_item_is_an_image_and_its_label(name):
    images = SETS[name]()
    assert isinstance(images, Dataset)
    pixels, labels, _ = images.batch(slice(None))
    for at in (0, 7, 19, -1):
        image, label = images[at]
        assert torch.equal(image, pixels[at])
        assert torch.equal(torch.as_tensor(label), labels[at])
        assert isinstance(label, int) == (labels.ndim == 1)
    assert len(list(images)) == 20


@pytest.mark.parametrize("name", sorted(SETS))
def test_a_loader_gives_what_a_batch_gives(name):
    images = SETS[name]()
    pixels, labels, _ = images.batch(slice(None))
    order = []
    for image, label in DataLoader(images, batch_size=6, shuffle=True):
        found = [int((pixels == each).flatten(1).all(1).nonzero()[0]) for each in image]
        assert torch.equal(label, labels[found])
        order += found
    assert order != sorted(order)
    assert sorted(order) == list(range(20)) or name == "two objects"


@pytest.mark.parametrize(
    ("name", "fresh"),
    [("memory", False), ("two objects", False), ("expanded", True), ("augmented", True)],
)
def test_another_epoch_has_other_images_where_they_are_made_anew(name, fresh):
    images = SETS[name]()
    first = torch.stack([image for image, _ in images])
    images.set_epoch(3)
    third = torch.stack([image for image, _ in images])
    assert torch.equal(third, images.batch(slice(None), epoch=3).pixels)
    assert torch.equal(first, third) != fresh
    images.set_epoch(0)
    assert torch.equal(torch.stack([image for image, _ in images]), first)


def test_workers_give_the_epoch_that_was_set():
    images = SETS["expanded"]()
    images.set_epoch(2)
    (batch,) = DataLoader(images, batch_size=20, num_workers=1)
    assert torch.equal(batch[0], images.batch(slice(None), epoch=2).pixels)


def test_the_epoch_changes_no_digest_and_a_set_can_be_read_as_any_dataset():
    images = SETS["expanded"]()
    digest = images.digest()
    images.set_epoch(5)
    assert images.digest() == digest
    plain = noise(6)
    read = from_dataset(plain, plain.class_names)
    assert torch.equal(read.images, plain.pixels(slice(None)))
    assert torch.equal(read.labels, plain.labels)


def test_what_is_no_number_of_an_image_is_told():
    images = noise()
    assert text_of(lambda: images[torch.tensor([1, 2])]) == (
        "an image is asked for by a whole number, but came tensor([1, 2]); for several at once, "
        "images.batch(index)."
    )
    assert "for several at once, images.batch(index)" in text_of(lambda: images[2:5])
    with pytest.raises(IndexError, match="there are 20 images, and none has the number 20"):
        images[20]
    assert text_of(lambda: images.set_epoch(-1)) == (
        "epoch must be a whole number from 0, but came as -1."
    )
