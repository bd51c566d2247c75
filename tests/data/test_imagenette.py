"""Imagenette, laid down by hand as published: photographs of many sizes in a folder a class."""

import shutil

import numpy as np
import pytest

from error_text import text_of
from laid_pictures import paint
from torchcaps.data import imagenette, load


@pytest.fixture
def home(tmp_path):
    for split, first in (("train", 0), ("val", 100)):
        for number, sort in enumerate(("n01440764", "n02102040")):
            for k in range(2):
                level = first + 50 * number + 10 * k
                # Some of its photographs are grey.
                shape = (6 + k, 9, 3) if k else (6, 9)
                path = tmp_path / "imagenette2" / split / sort / f"{sort}_{k}.JPEG"
                paint(path, np.full(shape, level, np.uint8))
    (tmp_path / "imagenette2" / "noisy_imagenette.csv").write_text("not read")
    return tmp_path / "imagenette2"


def levels(images):
    return images.images.float().mean((1, 2, 3)).round().tolist()


@pytest.mark.parametrize(("split", "first"), [("train", 0), ("test", 100)])
def test_a_picture_has_the_class_of_its_folder_and_the_test_is_val(home, split, first):
    for root in (home, home.parent):
        images = load("imagenette", split=split, root=root, size=(5, 7))
        assert (images.name, images.image_shape) == ("imagenette", (3, 5, 7))
        assert images.class_names == ("n01440764", "n02102040")
        assert images.labels.tolist() == [0, 0, 1, 1]
        assert levels(images) == pytest.approx([first + x for x in (0, 10, 50, 60)], abs=2)


def test_the_largest_that_is_there_is_read(home):
    home.rename(home.with_name("imagenette2-160"))
    assert len(imagenette(home.parent, "train", size=(4, 4))) == 4
    for split in ("train", "val"):
        for sort in ("n01440764", "n02102040"):
            paint(home / split / sort / "a.JPEG", np.zeros((4, 4), np.uint8))
    assert len(imagenette(home.parent, "train", size=(4, 4))) == 2


def test_what_is_missing_is_told(home):
    assert "choose one size for all, (height, width): size= in Python, --image-size" in text_of(
        lambda: imagenette(home, "train")
    )
    shutil.rmtree(home / "train" / "n01440764")
    assert text_of(lambda: imagenette(home, "test")) == (
        f"neither {home} nor a folder imagenette2 in it holds train/n01440764, the first of its "
        f"classes; unpack imagenette2.tgz, and point to the folder that it makes."
    )
