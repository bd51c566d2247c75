"""Labelled images are checked once at the door, in one sentence that names the image."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from torchcaps.data import ImageSet

NAMES = ("cat", "dog")
# Images that fit, and labels that fit them.
FINE, ANSWERS = torch.zeros(2, 1, 2, 2), torch.zeros(2).long()


def images_of(images: Tensor, labels: Tensor | None = None) -> ImageSet:
    if labels is None:
        labels = torch.zeros(len(images), dtype=torch.int64)
    return ImageSet("mine", images, labels, NAMES)


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
