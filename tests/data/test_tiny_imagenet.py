"""Tiny ImageNet, laid down by hand as published: three classes of two pictures."""

import shutil

import numpy as np
import pytest
import torch

from error_text import text_of
from laid_pictures import paint
from torchcaps.data import load, tiny_imagenet

WNIDS = ("n02", "n01", "n03")
# Two of the classes mean the same word.
WORDS = "n01\tgoldfish, Carassius auratus\nn02\tcrane\nn03\tcrane\nn04\ta class of ImageNet alone\n"
VAL = "val_0.JPEG\tn03\t0\t0\t5\t5\nval_1.JPEG\tn02\t1\t1\t5\t5\n"


def even(level, mode="RGB"):
    return np.full((6, 6, 3) if mode == "RGB" else (6, 6), level, np.uint8)


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "tiny-imagenet-200"
    for number, wnid in enumerate(WNIDS):
        for k in range(2):
            mode = "L" if k else "RGB"
            path = home / "train" / wnid / "images" / f"{wnid}_{k}.JPEG"
            paint(path, even(100 * number + 20 * k, mode))
        (home / "train" / wnid / f"{wnid}_boxes.txt").write_text("not read")
    for k in range(2):
        paint(home / "val" / "images" / f"val_{k}.JPEG", even(10 + 100 * k))
    paint(home / "test" / "images" / "test_0.JPEG", even(255))
    (home / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    (home / "words.txt").write_text(WORDS)
    (home / "val" / "val_annotations.txt").write_text(VAL)
    return home


def levels(images):
    return images.images.float().mean((1, 2, 3)).round().tolist()


def test_training_pictures_have_the_class_of_their_folder(home):
    for root in (home, home.parent):
        images = load("tiny-imagenet", root=root)
        assert images.images.shape == (6, 3, 6, 6)
        assert images.images.dtype == torch.uint8
        assert images.labels.tolist() == [0, 0, 1, 1, 2, 2]
        assert levels(images) == pytest.approx([0, 20, 100, 120, 200, 220], abs=2)


def test_the_test_is_val_whose_classes_stand_in_a_list(home):
    images = load("tiny-imagenet", split="test", root=home)
    assert images.labels.tolist() == [2, 0]
    assert levels(images) == pytest.approx([10, 110], abs=2)


def test_classes_are_named_by_their_first_word(home):
    assert tiny_imagenet(home, "test").class_names == ("crane n02", "goldfish", "crane n03")


def test_a_size_is_taken_from_the_recipe(home):
    assert load("tiny-imagenet", root=home, size=(9, 8)).image_shape == (3, 9, 8)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("wnids.txt", None, "holds wnids.txt; unpack tiny-imagenet-200.zip, and point to the"),
        ("wnids.txt", b"n01\nn01\n", "must name two or more classes, each once, but has 2 lines"),
        ("wnids.txt", b"n01\nn09\n", "n09/images, though wnids.txt names that class; the archive"),
        ("wnids.txt", b"n01\n../../etc\n", "must name classes such as n01443537, but has '../.."),
        ("wnids.txt", b"n01\n" + b"9" * 5000, "must name classes such as n01443537, but has '99"),
        ("words.txt", None, "words.txt; unpack the whole archive."),
        ("words.txt", b"n01 goldfish\n", "line 1 of "),
        ("words.txt", b"\xff\xfe\x00", "words.txt is no text; it is damaged: unpack it again."),
        ("val/val_annotations.txt", b"", "val_annotations.txt names no pictures; it is damaged"),
        (
            "val/val_annotations.txt",
            b"val_0.JPEG\tn99\n",
            "'val_0.JPEG' shows the class 'n99', but the set",
        ),
        (
            "val/val_annotations.txt",
            b"../../../secret.JPEG\tn01\n",
            "'../../../secret.JPEG' shows the class 'n01', but the set has no such image",
        ),
        ("val/val_annotations.txt", b"val_7.JPEG\tn01\n", "val_7.JPEG could not be read"),
        ("val/val_annotations.txt", b"9" * 300 + b"\tn01\n", "the set has no such image or no"),
        ("val/images/val_0.JPEG", b"no picture", "val_0.JPEG could not be read as a picture"),
    ],
)
def test_what_is_damaged_is_told(home, name, content, words):
    if content is None:
        (home / name).unlink()
    else:
        (home / name).write_bytes(content)
    assert words in text_of(lambda: [tiny_imagenet(home, each) for each in ("train", "test")])


def test_a_class_without_its_folder_and_a_link_that_leaves_are_told(home, tmp_path):
    shutil.rmtree(home / "train" / "n01")
    assert "the archive was not unpacked to its end" in text_of(
        lambda: tiny_imagenet(home, "train")
    )
    paint(tmp_path / "outside.JPEG", even(3))
    (home / "train" / "n01" / "images").mkdir(parents=True)
    (home / "train" / "n01" / "images" / "n01_0.JPEG").symlink_to(tmp_path / "outside.JPEG")
    assert "is a link that leaves" in text_of(lambda: tiny_imagenet(home, "train"))


def test_what_a_list_holds_is_not_quoted_at_length(home):
    """Found by make fuzz."""
    (home / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn0" + "9" * 5000)
    text = text_of(lambda: tiny_imagenet(home, "test"))
    assert "shows the class 'n0999" in text
    assert len(text) < 600
