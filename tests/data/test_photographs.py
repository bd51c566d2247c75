"""Photographs laid down by hand as published: Dogs vs. Cats, Imagenette and Tiny ImageNet."""

import shutil

import numpy as np
import pytest
import torch

import laid_pictures
from error_text import text_of
from laid_pictures import paint
from torchcaps.data import dogs_vs_cats, imagenette, load, tiny_imagenet


def even(level, *shape):
    return np.full(shape, level, np.uint8)


def levels(images):
    return images.images.float().mean((1, 2, 3)).round().tolist()


@pytest.fixture
def train(tmp_path):
    for k in range(10):
        paint(tmp_path / "train" / f"cat.{k}.jpg", even(10 + k, 8, 6, 3))
        paint(tmp_path / "train" / f"dog.{k}.jpg", even(200 + k, 5 + k, 9, 3))
    paint(tmp_path / "test1" / "1.jpg", even(99, 8, 6, 3))
    return tmp_path / "train"


def test_a_fifth_of_each_class_is_the_test(train):
    parts = [
        load("dogs-vs-cats", split=split, root=train, size=(7, 7)) for split in ("train", "test")
    ]
    assert [len(part) for part in parts] == [16, 4]
    for part, each in zip(parts, (8, 2), strict=True):
        assert part.image_shape == (3, 7, 7)
        assert part.labels.tolist() == [0] * each + [1] * each
        assert (part.name, part.class_names) == ("dogs-vs-cats", ("cat", "dog"))
    # The level tells the picture.
    together = sorted(round(level) for part in parts for level in levels(part))
    assert together == pytest.approx([*range(10, 20), *range(200, 210)], abs=1)


def test_which_pictures_are_the_test_depends_on_their_names_alone(train, tmp_path):
    first = levels(dogs_vs_cats(train, "test", size=(4, 4)))
    train.rename(tmp_path / "elsewhere")
    assert levels(dogs_vs_cats(tmp_path / "elsewhere", "test", size=(4, 4))) == first


def test_the_folder_above_will_do(train):
    assert len(dogs_vs_cats(train.parent, "test", size=(4, 4))) == 4


def test_pictures_of_many_sizes_need_one(train, nette):
    assert "choose one size for all, (height, width): size= in Python, --image-size" in text_of(
        lambda: load("dogs-vs-cats", root=train)
    )
    assert "choose one size for all, (height, width)" in text_of(lambda: imagenette(nette, "train"))


def test_what_does_not_belong_is_told(train, tmp_path):
    paint(train / "cow.1.jpg", even(5, 8, 6, 3))
    assert text_of(lambda: dogs_vs_cats(train, "train", size=(4, 4))) == (
        f"{train}/cow.1.jpg is named neither cat.NUMBER.jpg nor dog.NUMBER.jpg, so its class is "
        f"not known; take it away, or sort pictures into a folder a class and read them as data "
        f'"folder".'
    )
    for path in train.glob("c*"):
        path.unlink()
    assert f"{train} holds 0 of the pictures cat.NUMBER.jpg" in text_of(
        lambda: dogs_vs_cats(train, "train", size=(4, 4))
    )
    for path in train.iterdir():
        path.unlink()
    assert "holds cat.0.jpg, dog.0.jpg and so on; unpack train.zip" in text_of(
        lambda: dogs_vs_cats(tmp_path, "train")
    )


@pytest.fixture
def nette(tmp_path):
    for split, first in (("train", 0), ("val", 100)):
        for number, sort in enumerate(("n01440764", "n02102040")):
            for k in range(2):
                level = first + 50 * number + 10 * k
                # Some of its photographs are grey.
                shape = (6 + k, 9, 3) if k else (6, 9)
                path = tmp_path / "imagenette2" / split / sort / f"{sort}_{k}.JPEG"
                paint(path, even(level, *shape))
    (tmp_path / "imagenette2" / "noisy_imagenette.csv").write_text("not read")
    return tmp_path / "imagenette2"


@pytest.mark.parametrize(("split", "first"), [("train", 0), ("test", 100)])
def test_a_picture_has_the_class_of_its_folder_and_val_is_the_test(nette, split, first):
    for root in (nette, nette.parent):
        images = load("imagenette", split=split, root=root, size=(5, 7))
        assert (images.name, images.image_shape) == ("imagenette", (3, 5, 7))
        assert images.class_names == ("n01440764", "n02102040")
        assert images.labels.tolist() == [0, 0, 1, 1]
        assert levels(images) == pytest.approx([first + x for x in (0, 10, 50, 60)], abs=2)


def test_the_largest_that_is_there_is_read(nette):
    nette.rename(nette.with_name("imagenette2-160"))
    assert len(imagenette(nette.parent, "train", size=(4, 4))) == 4
    for split in ("train", "val"):
        for sort in ("n01440764", "n02102040"):
            paint(nette / split / sort / "a.JPEG", even(0, 4, 4))
    assert len(imagenette(nette.parent, "train", size=(4, 4))) == 2


def test_a_missing_class_is_told(nette):
    shutil.rmtree(nette / "train" / "n01440764")
    assert text_of(lambda: imagenette(nette, "test")) == (
        f"neither {nette} nor a folder imagenette2 in it holds train/n01440764, the first of its "
        f"classes; unpack imagenette2.tgz, and point to the folder that it makes."
    )


@pytest.fixture
def tiny(tmp_path):
    return laid_pictures.tiny(tmp_path / "tiny-imagenet-200")


def test_training_pictures_have_the_class_of_their_folder(tiny):
    for root in (tiny, tiny.parent):
        images = load("tiny-imagenet", root=root)
        assert images.images.shape == (6, 3, 6, 6)
        assert images.images.dtype == torch.uint8
        assert images.labels.tolist() == [0, 0, 1, 1, 2, 2]
        assert levels(images) == pytest.approx([0, 20, 100, 120, 200, 220], abs=2)


def test_the_test_is_val_whose_classes_stand_in_a_list(tiny):
    images = load("tiny-imagenet", split="test", root=tiny)
    assert images.labels.tolist() == [2, 0]
    assert levels(images) == pytest.approx([10, 110], abs=2)


def test_classes_are_named_by_their_first_word(tiny):
    assert tiny_imagenet(tiny, "test").class_names == ("crane n02", "goldfish", "crane n03")


def test_a_class_without_its_folder_and_a_link_that_leaves_are_told(tiny, tmp_path):
    shutil.rmtree(tiny / "train" / "n01")
    assert "the archive was not unpacked to its end" in text_of(
        lambda: tiny_imagenet(tiny, "train")
    )
    paint(tmp_path / "outside.JPEG", even(3, 6, 6, 3))
    (tiny / "train" / "n01" / "images").mkdir(parents=True)
    (tiny / "train" / "n01" / "images" / "n01_0.JPEG").symlink_to(tmp_path / "outside.JPEG")
    assert "is a link that leaves" in text_of(lambda: tiny_imagenet(tiny, "train"))


def test_what_a_list_holds_is_not_quoted_at_length(tiny):
    """Found by make fuzz."""
    (tiny / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn0" + "9" * 5000)
    text = text_of(lambda: tiny_imagenet(tiny, "test"))
    assert "shows the class 'n0999" in text
    assert len(text) < 600
