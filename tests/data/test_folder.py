"""A folder of pictures: modes, sizes, splits; and a sentence for each thing wrong with it."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from damage import MEGABYTE, at_most
from error_text import text_of
from laid_pictures import GREY, animals, pages, png
from torchcaps.data import Cropped, image_folder, load, resized


def firsts(found) -> list[int]:
    return found.images[:, 0, 0, 0].tolist()


def test_pictures_and_names_are_those_laid_down(tmp_path: Path) -> None:
    root = animals(tmp_path / "pets")
    train, test = (load("folder", split=split, root=root) for split in ("train", "test"))
    assert train.name == "pets"
    assert train.class_names == ("cat", "dog")
    assert train.image_shape == (1, 2, 3)
    assert train.images[0, 0, 1].tolist() == [4, 5, 6]
    assert sorted(firsts(train) + firsts(test)) == [0, 1, 2, 3, 100, 101, 102, 103]
    assert train.labels.tolist() == [first // 100 for first in firsts(train)]
    assert test.labels.tolist() == [0, 1]


def test_the_split_depends_on_seed_and_names_alone(tmp_path: Path) -> None:
    here, there = animals(tmp_path / "a", 20), animals(tmp_path / "b", 20)
    test = firsts(image_folder(here, "test", test_share=0.3, seed=5))
    assert len(test) == 12
    assert test == firsts(image_folder(there, "test", test_share=0.3, seed=5))
    torch.manual_seed(9)
    assert test == firsts(image_folder(here, "test", test_share=0.3, seed=5))
    draws = {str(firsts(image_folder(here, "test", seed=seed))) for seed in range(10)}
    assert len(draws) == 10


def test_folders_train_val_and_test_are_taken_as_they_are(tmp_path: Path) -> None:
    animals(tmp_path / "train", 3)
    animals(tmp_path / "val", 2)
    assert len(image_folder(tmp_path)) == 6
    assert len(image_folder(tmp_path, "val")) == len(image_folder(tmp_path, "test")) == 4
    animals(tmp_path / "test", 1, names=("dog",))
    found = image_folder(tmp_path, "test")
    assert found.class_names == ("cat", "dog")
    assert found.labels.tolist() == [1]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    root = animals(tmp_path, names=("plane", "train"))
    assert image_folder(root).class_names == ("plane", "train")


def one(tmp_path: Path, image, name: str = "1.png", **options):
    """Channels of the only picture of the class `a`, beside a black one of the class `b`."""
    for label in "ab":
        (tmp_path / "train" / label).mkdir(parents=True, exist_ok=True)
    image.save(tmp_path / "train" / "a" / name)
    Image.new("L", image.size).save(tmp_path / "train" / "b" / "1.png")
    return image_folder(tmp_path, **options).images[0]


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("1", 1, [255]),
        ("L", 77, [77]),
        ("I;16", 0x4D12, [0x4D]),
        ("RGB", (10, 20, 30), [10, 20, 30]),
        ("RGBA", (10, 20, 30, 255), [10, 20, 30]),
        ("RGBA", (10, 20, 30, 0), [255, 255, 255]),
        ("LA", (60, 0), [255]),
    ],
)
def test_every_mode_becomes_one_channel_or_three(tmp_path, mode, colour, expected) -> None:
    image = Image.new(mode, (3, 2), colour)
    found = one(tmp_path, image)
    assert found[:, 1, 1].tolist() == expected
    coloured = one(tmp_path, image, channels=3)
    assert coloured[:, 1, 1].tolist() == (expected * 3 if len(expected) == 1 else expected)
    assert len(one(tmp_path, image, channels=1)) == 1


def test_palettes_and_printers_colours_are_colours(tmp_path: Path) -> None:
    palette = Image.new("P", (3, 2), 1)
    palette.putpalette([0, 0, 0, 9, 8, 7])
    assert one(tmp_path, palette)[:, 0, 0].tolist() == [9, 8, 7]
    cmyk = Image.new("CMYK", (3, 2), (0, 255, 0, 0))
    assert one(tmp_path, cmyk, "0.tif")[:, 0, 0].tolist() == [255, 0, 255]


@pytest.mark.parametrize("kind", ["png", "tif"])
def test_pictures_stand_as_their_camera_noted(tmp_path: Path, kind: str) -> None:
    image = Image.fromarray(np.array([[1, 2, 3], [4, 5, 6]], np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    for label in "ab":
        (tmp_path / label).mkdir()
        for number in range(2):
            image.save(tmp_path / label / f"{number}.{kind}", exif=exif)
    assert image_folder(tmp_path).images[0, 0].tolist() == [[4, 1], [5, 2], [6, 3]]


def test_sizes_are_brought_to_the_one_asked_for(tmp_path: Path) -> None:
    root = animals(tmp_path / "train", 1)
    (root / "dog" / "0.png").write_bytes(png(2, 4, [b"\x09\x09"] * 4))
    assert text_of(lambda: load("folder", root=tmp_path)) == (
        f"{root / 'cat' / '0.png'} has 2 × 3 pixels and {root / 'dog' / '0.png'} has 4 × 2; choose "
        f"one size for all, (height, width): size= in Python, --image-size 2x3 on the command line."
    )
    found = image_folder(tmp_path, size=(5, 7))
    assert found.image_shape == (1, 5, 7)
    assert found.images[1].unique().tolist() == [9]
    # The grey of the cat rises from above to below and stays within its own.
    assert (found.images[0, 0].long().diff(dim=0)[:, -1] >= 0).all()
    assert found.images[0].max() == 6


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_split_has_the_size_and_channels_of_all_pictures(tmp_path: Path, split: str) -> None:
    """Else the end of a training would find that its test images do not fit."""
    root = animals(tmp_path / "pets", 5)
    colour = png(3, 2, [b"\x09\x00\x00" * 3] * 2, colour=2)
    drawn = load("folder", split="test", root=root)
    (root / "cat" / f"{firsts(drawn)[0]}.png").write_bytes(colour)
    assert load("folder", split=split, root=root).image_shape == (3, 2, 3)
    (root / "cat" / f"{firsts(drawn)[0]}.png").write_bytes(png(2, 4, [b"\x09\x09"] * 4))
    assert "choose one size for all" in text_of(lambda: load("folder", split=split, root=root))
    for part in ("train", "test"):
        animals(tmp_path / "parted" / part, 2)
    (tmp_path / "parted" / "test" / "dog" / "0.png").write_bytes(colour)
    assert load("folder", split=split, root=tmp_path / "parted").image_shape == (3, 2, 3)


def test_hidden_and_other_files_are_passed_over(tmp_path: Path) -> None:
    root = animals(tmp_path)
    (root / ".cache").mkdir()
    (root / "README.txt").write_text("ours")
    (root / "cat" / ".DS_Store").write_bytes(b"?")
    (root / "cat" / "notes.txt").write_text("ours")
    assert image_folder(root).class_names == ("cat", "dog")


@pytest.mark.parametrize("parts", [("",), ("train", "test")], ids=["drawn", "parted"])
@pytest.mark.parametrize("name", ["...", ".net"])
def test_a_class_whose_name_begins_with_a_dot_is_told(
    tmp_path: Path, name: str, parts: tuple[str, ...]
) -> None:
    for part in parts:
        root = animals(tmp_path / "pets" / part)
        (root / "dog").rename(root / "duck")
        shutil.copytree(root / "cat", root / name)
    with pytest.warns(UserWarning, match="left out") as told:
        assert image_folder(tmp_path / "pets").class_names == ("cat", "duck")
    first = tmp_path / "pets" / sorted(parts)[0] / name / "0.png"
    assert [str(each.message) for each in told] == [
        f"left out of {tmp_path / 'pets'}: {4 * len(parts)} pictures ({first} is the first), which "
        f"lie in a hidden folder; if it is a class, name it without a dot, or take them away."
    ]


def test_pictures_that_are_left_out_are_counted(tmp_path: Path) -> None:
    root = animals(tmp_path / "pets")
    for name in ("b.HEIC", "a.gif", ".c.gif"):
        (root / "dog" / name).write_bytes(b"?")
    with pytest.warns(UserWarning, match="left out") as told:
        assert len(image_folder(root)) == 6
    assert [str(each.message) for each in told] == [
        f"left out of {root}: 2 pictures ({root}/dog/a.gif is the first), which are of formats "
        f"that are not read; save them as .png, or take them away."
    ]
    assert told[0].filename == __file__
    for left in (root / "dog").glob("*.[gH]*"):
        left.unlink()
    (root / "cat" / "kittens").mkdir()
    (root / "cat" / "kittens" / "1.png").write_bytes(GREY)
    with pytest.warns(UserWarning, match=r"1 pictures .*kittens/1.png is the first.*move them up"):
        assert len(image_folder(root)) == 6


def test_the_preview_in_a_telephones_picture_is_no_page(tmp_path: Path) -> None:
    for label in "ab":
        path = tmp_path / "train" / label / "1.mpo"
        path.parent.mkdir(parents=True)
        pages(path)
        path.rename(path.with_suffix(".jpg"))
    assert image_folder(tmp_path, channels=3, size=(2, 3)).images[0, 0].min() > 200


def test_more_than_memory_holds_is_refused_before_it_is_taken(tmp_path, monkeypatch) -> None:
    root = animals(tmp_path)
    monkeypatch.setitem(image_folder.__globals__, "MOST_BYTES", 6 * 20)
    assert len(image_folder(root)) == 6
    with at_most(2 * MEGABYTE):
        assert text_of(lambda: image_folder(root, size=(4096, 4096), channels=3)) == (
            "6 pictures of 4096 × 4096 would fill 0 GiB of memory; give a smaller size=(height, "
            "width)."
        )


def test_pillow_is_asked_for_only_when_pictures_are_read(tmp_path: Path, monkeypatch) -> None:
    assert not hasattr(sys.modules["torchcaps.data.read.folder"], "Image")
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert text_of(lambda: load("folder", root=animals(tmp_path))) == (
        "pictures are read by pillow, which comes with the extra [data]: "
        "pip install 'torchcaps[data]'."
    )


def test_every_image_knows_its_file(tmp_path):
    for name in ("b", "a"):
        for number in (2, 1):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.new("L", (3, 3)).save(tmp_path / name / f"{number}.png")
    (tmp_path / "train").mkdir()
    for name in ("a", "b"):
        (tmp_path / name).rename(tmp_path / "train" / name)
    images = image_folder(tmp_path)
    assert images.files == ("train/a/1.png", "train/a/2.png", "train/b/1.png", "train/b/2.png")
    assert images.take(torch.tensor([2, 0])).files == ("train/b/1.png", "train/a/1.png")
    assert resized(images, (5, 5)).files == images.files
    assert Cropped(images, (2, 2)).files == images.files
    rest, held = images.hold_out(share=0.25, seed=1)
    assert sorted(rest.files + held.files) == sorted(images.files)
