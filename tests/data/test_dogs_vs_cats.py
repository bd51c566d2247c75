"""Dogs vs. Cats, laid down by hand as published: classes in the names of the files."""

import numpy as np
import pytest

from error_text import text_of
from laid_pictures import paint
from torchcaps.data import dogs_vs_cats, load


def even(level, size=(8, 6)):
    return np.full((*size, 3), level, np.uint8)


@pytest.fixture
def train(tmp_path):
    for k in range(10):
        paint(tmp_path / "train" / f"cat.{k}.jpg", even(10 + k))
        paint(tmp_path / "train" / f"dog.{k}.jpg", even(200 + k, size=(5 + k, 9)))
    paint(tmp_path / "test1" / "1.jpg", even(99))
    return tmp_path / "train"


def levels(images):
    return images.images.float().mean((1, 2, 3)).round().tolist()


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


def test_pictures_of_many_sizes_need_one(train):
    assert "choose one size for all, (height, width): size= in Python, --image-size" in text_of(
        lambda: load("dogs-vs-cats", root=train)
    )


def test_what_does_not_belong_is_told(train, tmp_path):
    paint(train / "cow.1.jpg", even(5))
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
