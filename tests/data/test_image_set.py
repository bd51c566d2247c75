"""Labelled images are checked once at the door, in one sentence that names the image."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from error_text import text_of as error_text
from torchcaps.data import ImageSet
from torchcaps.errors import TorchcapsError

NAMES = ("cat", "dog")


def images_of(images: Tensor, labels: Tensor | None = None) -> ImageSet:
    if labels is None:
        labels = torch.zeros(len(images), dtype=torch.int64)
    return ImageSet("mine", images, labels, NAMES)


def text_of(images: Tensor, labels: Tensor | None = None) -> str:
    with pytest.raises(TorchcapsError) as error:
        images_of(images, labels)
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("shape", [(4, 5, 5), (4, 1, 5, 5, 1), (4,), (0, 1, 5, 5), (4, 1, 0, 5)])
def test_images_without_four_axes_or_without_images_are_refused(shape: tuple[int, ...]) -> None:
    assert text_of(torch.zeros(shape)) == (
        f"mine: images must be [n, channels, height, width] with at least one image, but came with "
        f"shape {list(shape)}; grey images need a channel axis: images.unsqueeze(1)."
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.int8])
def test_images_of_another_dtype_are_refused(dtype: torch.dtype) -> None:
    expected = f"mine: images must be bytes or floats in [0, 1], but came as {dtype}."
    assert text_of(torch.zeros(2, 1, 2, 2, dtype=dtype)) == expected


@pytest.mark.parametrize(
    "labels",
    [
        torch.zeros(2),
        torch.zeros(2, dtype=torch.int32),
        torch.zeros(3).long(),
        torch.zeros(2, 1).long(),
    ],
)
def test_labels_of_another_dtype_or_count_are_refused(labels: Tensor) -> None:
    assert text_of(torch.zeros(2, 1, 2, 2), labels) == (
        f"mine: labels must be int64 [2], one an image, but came as {labels.dtype} with shape "
        f"{list(labels.shape)}."
    )


@pytest.mark.parametrize(("labels", "at", "label"), [([0, 1, 2, 5], 2, 2), ([1, -1, 0, 1], 1, -1)])
def test_a_label_out_of_range_is_named_with_its_image(labels, at: int, label: int) -> None:
    assert text_of(torch.zeros(4, 1, 2, 2), torch.tensor(labels)) == (
        f"mine: labels must be 0 to 1 for 2 classes, but image {at} has label {label}; count "
        f"classes from 0, or name them all."
    )


@pytest.mark.parametrize(
    ("value", "span"),
    [
        (1.5, "0 to 1.5"),
        (255.0, "0 to 255"),
        (-0.25, "-0.25 to 0"),
        (float("nan"), "nan to nan"),
        (float("inf"), "0 to inf"),
    ],
)
def test_a_pixel_that_is_no_share_of_white_is_named_with_its_image(value, span: str) -> None:
    images = torch.zeros(5, 1, 3, 3)
    images[3, 0, 1, 2] = value
    assert text_of(images) == (
        f"mine: pixels must be finite and in [0, 1], but image 3 goes from {span}; divide bytes by "
        f"255, and mend NaN where the image was prepared."
    )


def test_facts_of_another_count_are_refused() -> None:
    images, labels = torch.zeros(2, 1, 3, 3), torch.tensor([0, 1])
    facts = {"azimuth": torch.zeros(3)}
    with pytest.raises(TorchcapsError) as error:
        ImageSet("mine", images, labels, NAMES, facts=facts)
    assert str(error.value) == (
        "mine: the fact 'azimuth' must be [2], one an image, but came with shape [3]."
    )


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


def test_what_is_no_tensor_is_told() -> None:
    arrays = np.zeros((2, 1, 2, 2), np.uint8), np.zeros(2, np.int64)
    assert text_of(arrays[0], torch.zeros(2).long()) == (
        "mine: images must be a tensor, but came as a ndarray; data.from_arrays takes arrays and "
        "lists."
    )
    assert "labels must be a tensor, but came as a ndarray;" in text_of(
        torch.zeros(2, 1, 2, 2), arrays[1]
    )


def test_names_of_classes_tell_them_apart() -> None:
    images, labels = torch.zeros(2, 1, 2, 2), torch.zeros(2).long()
    assert ImageSet("mine", images, labels, ["cat", "dog"]).class_names == NAMES
    for names, words in (
        (("cat", "cat"), "mine: every class needs a name of its own, but 'cat' names two of them,"),
        ("cd", "mine: class_names must be a list of names, one a class, but came as 'cd'."),
    ):
        with pytest.raises(TorchcapsError) as error:
            ImageSet("mine", images, labels, names)
        assert str(error.value).startswith(words)


def test_files_must_be_one_an_image() -> None:
    with pytest.raises(TorchcapsError) as error:
        ImageSet("mine", torch.zeros(2, 1, 2, 2), torch.zeros(2).long(), NAMES, files=("a.png",))
    assert str(error.value) == ("mine: files must name 2 files, one an image, but came with 1.")


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


@pytest.mark.parametrize(("group", "shown"), [(None, "None"), ("", "''"), (np.nan, "nan")])
def test_an_image_without_a_group_is_named(group, shown: str) -> None:
    assert error_text(lambda: grouped(["ann", group])) == (
        f"mine: image 1 has no group ({shown}); name the group of every image, one of its own "
        f"where an image belongs to no other."
    )


def test_groups_that_are_no_list_of_names_or_of_another_length_are_refused() -> None:
    assert error_text(lambda: grouped("ab")) == (
        "mine: groups must be a list of names, one an image, but came as 'ab'."
    )
    assert error_text(lambda: grouped(["a"])) == (
        "mine: groups must name a group for each of 2 images, but came with 1."
    )
