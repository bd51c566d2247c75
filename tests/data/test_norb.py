"""smallNORB files laid down by hand, and each way to break them."""

from pathlib import Path

import pytest
import torch

from damage import MEGABYTE, at_most
from error_text import text_of
from laid_norb import FILES, PAIR, TEST, TRAIN, cat, folder, info, words
from torchcaps.data import load, smallnorb


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("stem", "split"), [(TRAIN, "train"), (TEST, "test")])
def test_pairs_labels_and_viewpoints_are_those_laid_down(tmp_path, packed, stem, split) -> None:
    found = load("smallnorb", split=split, root=folder(tmp_path, stem, packed=packed))
    assert found.image_shape == (2, 96, 96)
    assert found.images[0, 0, :, 7].tolist() == list(range(96))
    assert found.images[0, 1, 7].tolist() == list(range(96))
    assert not found.images[1].any()
    assert [found.class_names[label] for label in found.labels] == ["car", "animal"]
    assert {name: fact.tolist() for name, fact in found.facts.items()} == {
        "instance": [8, 4],
        "elevation": [45, 30],
        "azimuth": [340, 0],
        "lighting": [5, 0],
    }


def test_a_split_by_viewpoint_is_one_line(tmp_path: Path) -> None:
    found = smallnorb(folder(tmp_path), "train")
    familiar = torch.isin(found.facts["azimuth"], torch.tensor([0, 20, 40, 300, 320, 340]))
    assert familiar.tolist() == [True, True]
    assert (found.facts["elevation"] <= 40).tolist() == [False, True]


def test_a_folder_of_the_sets_name_is_looked_into(tmp_path: Path) -> None:
    inner = tmp_path / "smallNORB"
    inner.mkdir()
    folder(inner)
    assert len(load("smallnorb", root=tmp_path)) == 2


@pytest.mark.parametrize("kind", ["dat", "cat", "info"])
def test_a_missing_file_is_told(tmp_path: Path, kind: str) -> None:
    name = f"{TRAIN}-{kind}.mat"
    (folder(tmp_path) / name).unlink()
    assert text_of(lambda: smallnorb(tmp_path, "train")) == (
        f"{name} or {name}.gz is not in {tmp_path}; point to the folder that holds the "
        f"-dat.mat, -cat.mat and -info.mat files of smallNORB."
    )


GOOD = FILES["dat"]


@pytest.mark.parametrize(
    ("kind", "content", "sentence"),
    [
        (
            "dat",
            FILES["cat"],
            "should begin with 55 4c 3d 1e, the mark of a binary matrix of bytes, but begins with "
            "54 4c 3d 1e; is it another of the three files, or a MATLAB file?",
        ),
        ("cat", GOOD, "a binary matrix of integers, but begins with 55 4c 3d 1e;"),
        ("dat", b"MATLAB 5.0 MAT-file", "but begins with 4d 41 54 4c;"),
        ("dat", b"", "but begins with nothing;"),
        ("dat", b"\x1e\x3d\x4c\x55" + GOOD[4:], "but begins with 1e 3d 4c 55;"),
        ("dat", GOOD[:6], "ends after 2 of the 4 bytes that its header announces; it is cut short"),
        ("dat", GOOD[:-1], f"ends after {2 * PAIR - 1} of the {2 * PAIR} bytes that its header"),
        ("dat", GOOD + b"!", f"holds more than the {2 * PAIR} bytes that its header announces;"),
        ("dat", GOOD[:4] + words(3) + GOOD[8:], "should have 4 axes, but its header says 3;"),
        (
            "dat",
            GOOD[:4] + words(2**31 - 1) + GOOD[8:],
            "should have 4 axes, but its header says 21474",
        ),
        (
            "dat",
            GOOD[:4] + words(4, 2, 2, 32, 32) + bytes(4096),
            "should have sizes n × 2 × 96 × 96 and at most 1791590400 values, but claims "
            "2 × 2 × 32 × 32; it is another file, or damaged: fetch it again.",
        ),
        ("dat", GOOD[:4] + words(4, 2, 1, 96, 96), "but claims 2 × 1 × 96 × 96;"),
        ("dat", GOOD[:4] + words(4, 0, 2, 96, 96), "but claims 0 × 2 × 96 × 96;"),
        ("dat", GOOD[:4] + words(4, -2, 2, 96, 96), "but claims -2 × 2 × 96 × 96;"),
        ("dat", GOOD[:4] + words(4, 2**31 - 1, 2, 96, 96), "but claims 2147483647 × 2"),
        ("cat", cat(4, 5), "smallnorb: labels must be 0 to 4 for 5 classes, but image 1 has label"),
        ("cat", cat(-1, 0), "but image 0 has label -1;"),
        ("cat", cat(1, 2, 3), "smallnorb: labels must be int64 [2], one an image, but came as"),
        ("cat", cat(1)[:8] + words(1, 2, 1) + words(1, 2), "but claims 1 × 2 × 1;"),
        (
            "info",
            info((8, 3, 34, 5)),
            "the fact 'instance' must be [2], but came with shape [1]; every",
        ),
        (
            "info",
            info((8, 3, 34, 5), (4, 9, 0, 0)),
            "should hold elevation from 0 to 8, but image 1 has 9; it is damaged or another file.",
        ),
        (
            "info",
            info((8, 3, 33, 5), (4, 0, 0, 0)),
            "azimuth from 0 to 34 in steps of 2, but image 0 has 33;",
        ),
        ("info", info((8, 3, 34, 6), (4, 0, 0, 0)), "lighting from 0 to 5, but image 0 has 6;"),
        ("info", info((10, 3, 34, 5), (4, 0, 0, 0)), "instance from 0 to 9, but image 0 has 10;"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_broken_file_is_told(tmp_path, packed: bool, kind: str, content: bytes, sentence) -> None:
    folder(tmp_path, packed=packed, **{kind: content})
    with at_most(MEGABYTE):
        assert sentence in text_of(lambda: smallnorb(tmp_path, "train"))
