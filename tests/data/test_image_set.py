"""Labelled images are checked once at the door, in one sentence that names the image."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from error_text import text_of
from torchcaps.data import ImageSet

NAMES = ("cat", "dog")
NAN = float("nan")
# Images that fit, and labels that fit them.
FINE, ANSWERS = torch.zeros(2, 1, 2, 2), torch.zeros(2).long()


def images_of(images: Tensor, labels: Tensor | None = None) -> ImageSet:
    if labels is None:
        labels = torch.zeros(len(images), dtype=torch.int64)
    return ImageSet("mine", images, labels, NAMES)


def with_pixel(value: float) -> Tensor:
    """Five images, of which image 3 has one other pixel."""
    images = torch.zeros(5, 1, 3, 3)
    images[3, 0, 1, 2] = value
    return images


AXES = "images must be [n, channels, height, width] with at least one image, but came with shape"
BYTES = "images must be bytes or floats in [0, 1], but came as"
INT64 = "labels must be int64 [2], one an image, but came as"
SHARES = "pixels must be finite and in [0, 1], but image 3 goes from"
REFUSED = [
    *(
        ((torch.zeros(shape),), f"{AXES} {list(shape)}; grey images need a channel axis: images.un")
        for shape in ((4, 5, 5), (4,), (0, 1, 5, 5), (4, 1, 0, 5))
    ),
    (
        (torch.zeros(4, 1, 5, 5, 1),),
        f"{AXES} [4, 1, 5, 5, 1]; the slices of a volume are channels:",
    ),
    *(
        ((torch.zeros(2, 1, 2, 2, dtype=dtype),), f"{BYTES} {dtype}.")
        for dtype in (torch.int64, torch.bool, torch.int8)
    ),
    ((FINE, torch.zeros(2)), f"{INT64} torch.float32 with shape [2]."),
    ((FINE, torch.zeros(2, dtype=torch.int32)), f"{INT64} torch.int32 with shape [2]."),
    ((FINE, torch.zeros(3).long()), f"{INT64} torch.int64 with shape [3]."),
    ((FINE, torch.zeros(2, 1).long()), f"{INT64} torch.int64 with shape [2, 1]."),
    (
        (FINE, torch.tensor([0, 2])),
        "labels must be 0 to 1 for 2 classes, but image 1 has label 2; count classes from 0, or "
        "name them all.",
    ),
    (
        (FINE, torch.tensor([-1, 1])),
        "labels must be 0 to 1 for 2 classes, but image 0 has label -1",
    ),
    (
        (with_pixel(1.5),),
        f"{SHARES} 0 to 1.5; divide bytes by 255, and mend NaN where the image was prepared.",
    ),
    ((with_pixel(255.0),), f"{SHARES} 0 to 255;"),
    ((with_pixel(-0.25),), f"{SHARES} -0.25 to 0;"),
    ((with_pixel(NAN),), f"{SHARES} nan to nan;"),
    ((with_pixel(float("inf")),), f"{SHARES} 0 to inf;"),
    (
        (FINE.numpy(), ANSWERS),
        "images must be a tensor, but came as a ndarray; data.from_arrays takes arrays and lists.",
    ),
    ((FINE, ANSWERS.numpy()), "labels must be a tensor, but came as a ndarray;"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_what_is_no_set_of_images_is_refused(given, words: str) -> None:
    assert text_of(lambda: images_of(*given)).startswith(f"mine: {words}")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"facts": {"azimuth": torch.zeros(3)}},
            "the fact 'azimuth' must be [2], but came with sh",
        ),
        ({"files": ("a.png",)}, "files must name 2 files, one an image, but came with 1."),
        ({"class_names": ("cat", "cat")}, "every class needs a name of its own, but 'cat' names"),
        (
            {"class_names": "cd"},
            "class_names must be a list of names, one a class, but came as 'cd'",
        ),
        ({"groups": "ab"}, "groups must be a list of names, one an image, but came as 'ab'."),
        ({"groups": ["a"]}, "groups must name a group for each of 2 images, but came with 1."),
        *(
            (
                {"groups": ["ann", group]},
                f"image 1 has no group ({group!r}); name the group of every image, one of its own "
                f"where an image belongs to no other.",
            )
            for group in (None, "", NAN)
        ),
    ],
)
def test_what_is_told_of_images_must_fit_them(more: dict, words: str) -> None:
    known = {"class_names": NAMES} | more
    assert text_of(lambda: ImageSet("mine", FINE, ANSWERS, **known)).startswith(f"mine: {words}")


def test_zero_and_one_and_every_byte_are_allowed() -> None:
    assert len(images_of(torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1))) == 2
    assert len(images_of(torch.arange(256, dtype=torch.uint8).reshape(256, 1, 1, 1))) == 256


def test_pixels_of_bytes_are_shares_of_white() -> None:
    images = images_of(torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(3, 1, 1, 1))
    found = images.pixels(torch.tensor([2, 0, 1, 1]))
    assert found.dtype == torch.float32
    assert found.shape == (4, 1, 1, 1)
    assert found.flatten().tolist() == torch.tensor([1.0, 0.0, 0.2, 0.2]).tolist()


def test_pixels_of_floats_are_the_floats() -> None:
    floats = torch.rand(5, 3, 2, 4, dtype=torch.float32)
    assert torch.equal(images_of(floats).pixels(slice(1, 3)), floats[1:3])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_pixels_of_other_floats_are_what_a_network_takes(dtype: torch.dtype) -> None:
    images = images_of(torch.full((2, 1, 2, 2), 0.5, dtype=dtype))
    assert images.pixels(slice(0, 2)).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float16, torch.bfloat16])
def test_images_of_every_dtype_have_a_digest(dtype: torch.dtype) -> None:
    dark, light = (images_of(torch.full((2, 1, 2, 2), x).to(dtype)).digest() for x in (0.0, 1.0))
    assert dark != light


def test_the_digest_stays_what_runs_have_written_down() -> None:
    assert images_of(torch.arange(8).view(2, 1, 2, 2).to(torch.uint8)).digest() == "6bef6c9c57c4"


def test_the_shape_of_an_image_is_channels_height_width() -> None:
    assert images_of(torch.zeros(5, 3, 2, 4)).image_shape == (3, 2, 4)


def test_names_of_classes_become_a_tuple() -> None:
    assert ImageSet("mine", FINE, ANSWERS, ["cat", "dog"]).class_names == NAMES


def test_a_set_prints_what_it_holds_in_one_line() -> None:
    files = ("a.png", "b.png", "c.png")
    named = ImageSet(
        "my\x1b[2J", torch.zeros(3, 1, 5, 4), torch.zeros(3).long(), NAMES, files=files
    )
    assert repr(named) == "ImageSet('my\\x1b[2J': 3 images of 1×5×4, 2 classes)"


def grouped(groups) -> ImageSet:
    images = torch.arange(8).view(2, 1, 2, 2).to(torch.uint8)
    return replace(images_of(images), groups=groups)


def test_groups_go_with_their_images_and_into_the_digest() -> None:
    images = grouped(["ann", "bob"])
    assert images.groups == ("ann", "bob")
    assert images.take(torch.tensor([1, 0, 1])).groups == ("bob", "ann", "bob")
    assert images.take(torch.tensor([False, True])).groups == ("bob",)
    digests = {
        images_of(images.images).digest(): "6bef6c9c57c4",
        images.digest(): None,
        grouped(["ann", "ann"]).digest(): None,
        # Not the same letters after each other.
        grouped(["an", "nbob"]).digest(): None,
    }
    assert len(digests) == 4


@pytest.mark.parametrize("groups", [np.array([7, 8]), torch.tensor([7, 8]), (7, 8)])
def test_numbers_are_names_of_groups_too(groups) -> None:
    assert grouped(groups).groups == ("7", "8")
