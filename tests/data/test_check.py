"""What a check finds in sets of a few images, counted by hand; and in the real ones."""

from dataclasses import asdict

import pytest
import torch

from laid_images import Unchecked
from torchcaps.data import check, check_images, from_arrays, part_whole


def grey(*values, labels, size=2, n_classes=2, name="mine"):
    """An image for each value: that grey, but for a black corner."""
    images = torch.tensor(values).reshape(-1, 1, 1, 1).repeat(1, 1, size, size)
    images[:, :, 0, 0] = 0
    return from_arrays(images, labels, [f"class{n}" for n in range(n_classes)], name=name)


TRAIN = grey(0.25, 0.5, 1.0, 0.75, labels=[0, 1, 1, 0])
TEST = grey(0.125, 0.375, labels=[0, 1])


def test_a_sound_set_is_told_in_words():
    assert check_images(TRAIN, TEST).sentences() == [
        "mine: 4 training and 2 test images of 2 × 2 pixels, 1 channel; 2 classes.",
        "Pixels of the training images go from 0 to 1; mean 0.4688, standard deviation 0.3631.",
        "Pixels of the test images go from 0 to 0.375; mean 0.1875, standard deviation 0.1531.",
        "Every class has 2 training images.",
        "Every class has 1 test image.",
        "No training image occurs twice.",
        "No test image occurs twice.",
        "No test image is among the training images.",
    ]


def test_numbers_are_those_of_the_pixels():
    found = check_images(TRAIN, TEST)
    pixels = TRAIN.images
    assert found.train.count == 4
    assert found.train.shape == (1, 2, 2)
    assert (found.train.lowest, found.train.highest) == (0.0, 1.0)
    assert found.train.mean == pytest.approx([float(pixels.mean())])
    assert found.train.std == pytest.approx([float(pixels.std(correction=0))])
    assert found.train.class_counts == {"class0": 2, "class1": 2}


@pytest.mark.parametrize("block", [1, 2, 3, 512])
def test_images_are_looked_at_in_blocks_of_any_size(monkeypatch, block):
    expected = check_images(TRAIN, TEST)
    monkeypatch.setattr(check, "BLOCK", block)
    found = check_images(TRAIN, TEST)
    assert found.sentences() == expected.sentences()
    assert found.train.mean == pytest.approx(expected.train.mean)


def test_each_channel_has_its_mean():
    images = torch.zeros(3, 3, 4, 5, dtype=torch.uint8)
    images[:, 1], images[:, 2] = 51, 255
    found = check_images(from_arrays(images, [0, 1, 1]), from_arrays(images[:2], [0, 1]))
    assert found.train.mean == pytest.approx((0, 0.2, 1))
    assert found.train.std == pytest.approx((0, 0, 0), abs=1e-4)
    assert found.train.shape == (3, 4, 5)


def test_test_images_that_were_trained_on_are_counted():
    test = grey(0.125, 1.0, 0.25, 0.75, labels=[0, 1, 1, 1])
    found = check_images(TRAIN, test)
    assert (found.shared, found.shared_doubtful, found.shared_example) == (3, 2, (1, 2))
    assert found.sentences()[-1] == (
        "3 of 4 test images are among the training images, 2 of them with another label; test "
        "image 1 is training image 2: there the test measures memory."
    )


def test_images_that_occur_twice_are_counted_within_a_split():
    train = grey(0.5, 0.25, 0.5, 0.5, 0.25, labels=[0, 1, 0, 1, 1])
    found = check_images(train, TEST)
    # Three of a kind are two copies; one of the three has another label.
    assert (found.train.copies, found.train.doubtful) == (3, 3)
    assert (found.test.copies, found.test.doubtful, found.shared) == (0, 0, 0)
    sentences = found.sentences()
    assert "Of the training images, 3 are copies of an earlier one." in sentences
    assert (
        "Of the training images, 3 occur with more than one label: not all of these are right."
        in sentences
    )


def test_one_pixel_or_one_place_makes_another_image():
    images = torch.zeros(4, 1, 3, 3, dtype=torch.uint8)
    images[1, 0, 0, 0] = 1
    images[2, 0, 0, 1] = 1
    images[3, 0, 1, 0] = 1
    found = check_images(from_arrays(images, [0, 1, 0, 1]), TEST)
    assert found.train.copies == 0


def test_the_same_bytes_in_another_shape_are_another_image():
    wide = torch.arange(8.0).reshape(1, 1, 2, 4) / 8
    tall = wide.reshape(1, 1, 4, 2)
    names = ["a", "b"]
    found = check_images(from_arrays(wide, [0], names), from_arrays(tall, [0], names))
    assert found.sentences()[0] == (
        "arrays: 1 training and 1 test images, but those are 2 × 4 pixels, 1 channel and these "
        "4 × 2 pixels, 1 channel: no network takes both."
    )
    assert found.shared == 0


def test_uneven_and_missing_classes_are_told():
    train = grey(*[n / 100 for n in range(23)], labels=[0] * 22 + [1], n_classes=2)
    sentences = check_images(train, grey(0.3, labels=[1])).sentences()
    assert (
        "Classes have 1 (class1) to 22 (class0) training images; a guess of the largest class is "
        "right 95.7% of the time." in sentences
    )
    assert "No test image shows class0." in sentences
    assert (
        "The largest class has more than 10 times as many training images as the smallest: "
        "accuracy says little of the small ones." in sentences
    )


def test_even_classes_are_not_called_uneven():
    train = grey(*[n / 100 for n in range(11)], labels=[0] * 10 + [1])
    assert not any("little of the small" in each for each in check_images(train, TEST).sentences())


def test_splits_that_name_other_classes_are_told():
    test = grey(0.3, 0.4, labels=[1, 2], n_classes=3)
    sentences = check_images(TRAIN, test).sentences()
    assert (
        "Training and test name different classes: class0, class1 and class0, class1, class2."
        in sentences
    )


def test_pixels_divided_twice_are_told():
    train = grey(*[n / 255 / 255 for n in (10, 255, 100, 20)], labels=[0, 1, 1, 0])
    assert (
        "No pixel of the training images is brighter than 0.0039, where white is 1: were they "
        "divided by 255 twice?" in check_images(train, TEST).sentences()
    )


def test_blank_images_are_counted():
    images = torch.zeros(3, 1, 2, 2)
    images[1], images[2, 0, 0] = 0.5, 0.25
    found = check_images(from_arrays(images, [0, 1, 1]), TEST)
    assert found.train.blank == 2
    assert "Of the training images, 2 are one value throughout." in found.sentences()
    single = from_arrays(torch.tensor([0.1, 0.9]).view(2, 1, 1, 1), [0, 1])
    assert check_images(single, single).train.blank == 0


def test_images_of_several_classes_count_for_each():
    # Two images are alike, and so are their classes in another order.
    pixels = torch.tensor([0.5, 0.5, 1.0]).reshape(3, 1, 1, 1).expand(3, 1, 2, 2)
    pairs = Unchecked(pixels, torch.tensor([[0, 1], [1, 0], [2, 2]]), ("a", "b", "c"))
    found = check_images(pairs, pairs)
    assert found.train.class_counts == {"a": 2, "b": 2, "c": 1}
    assert (found.train.copies, found.train.doubtful) == (1, 0)
    assert (found.shared, found.shared_doubtful) == (3, 0)


def test_made_data_are_sound():
    found = check_images(part_whole("train", 300), part_whole("test", 50))
    assert (found.shared, found.train.copies, found.test.copies, found.train.blank) == (0, 0, 0, 0)
    assert asdict(found)["train"]["count"] == 300
